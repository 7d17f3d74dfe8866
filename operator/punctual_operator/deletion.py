"""The end of a Scheduler whose topics go with it: first workers, then topics, then finalizer."""

from collections.abc import Mapping
from typing import Any

from punctual_worker.contract.topics import TopicNames

from punctual_operator.api.names import FINALIZER, PARTS, key_of, part_name
from punctual_operator.api.types import Scheduler, parse_scheduler
from punctual_operator.clients.kafka import KafkaClusters
from punctual_operator.clients.kubernetes import Kubernetes
from punctual_operator.errors import ConflictError, OperatorError
from punctual_operator.plan.changes import is_owned
from punctual_operator.topic_step import SecretReader, TopicStep, connection_of


class Deletion:
    """Does the next thing that can be done; called until nothing is left."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        kafka: KafkaClusters,
        secrets: SecretReader,
        topics: TopicStep,
    ) -> None:
        self._kubernetes = kubernetes
        self._kafka = kafka
        self._secrets = secrets
        self._topics = topics

    async def run(self, body: Mapping[str, Any]) -> bool:
        """Whether the finalizer is gone; an error says why the topics are still there."""
        if FINALIZER not in body["metadata"].get("finalizers", ()):
            return True
        scheduler = parse_scheduler(body)
        if scheduler.spec.topics.deletion_policy == "Delete":
            # pending messages could still be delivered, or topics made again, by who is left
            if not await self._workers_are_gone(scheduler):
                return False
            await self._delete_topics(scheduler, body)
        await self._release(body)
        return True

    async def _workers_are_gone(self, scheduler: Scheduler) -> bool:
        key = key_of({"metadata": scheduler.model_dump()})
        children = await self._kubernetes.list_children(key)
        for part in PARTS:
            deployment = children.get(("Deployment", part_name(scheduler.name, part)))
            if (
                deployment is not None
                and is_owned(deployment, scheduler.uid)
                and "deletionTimestamp" not in deployment["metadata"]
            ):
                await self._kubernetes.delete_child(deployment)
        return not await self._kubernetes.list_pods(key)

    async def _delete_topics(self, scheduler: Scheduler, body: Mapping[str, Any]) -> None:
        names = TopicNames(scheduler.app_id).all
        try:
            secrets = await self._secrets.read(scheduler)
            connection = connection_of(scheduler, secrets)
            view = await self._kafka.observe(connection, names)
            self._topics.check_owner(body, view.cluster_id)
            if view.topics:
                await self._kafka.delete(connection, sorted(view.topics))
        except ConflictError:
            return  # they are another's
        except OperatorError as error:
            raise type(error)(
                f"The topics cannot be deleted: {error} To let the Scheduler go without them, set "
                "topics.deletionPolicy to Retain."
            ) from error

    async def _release(self, body: Mapping[str, Any]) -> None:
        metadata = body["metadata"]
        left = [name for name in metadata["finalizers"] if name != FINALIZER]
        await self._kubernetes.set_finalizers(
            key_of(body), left, resource_version=metadata["resourceVersion"]
        )
