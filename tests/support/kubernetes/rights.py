"""Asks the API server what an account may do, as it would decide it: by SubjectAccessReviews."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubernetes import client, config


@dataclass(frozen=True)
class Question:
    """`get secrets`, `patch schedulers.punctual.dev/status`, `get leases.coordination.k8s.io=x`."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "Question":
        verb, what = text.split(" ")
        what, _, name = what.partition("=")
        what, _, subresource = what.partition("/")
        resource, _, group = what.partition(".")
        return cls(verb, group, resource, subresource, name)


class Rights:
    """What one user may do."""

    def __init__(self, api: client.AuthorizationV1Api, user: str):
        self._api = api
        self._user = user

    def may(self, text: str, namespace: str | None = None) -> bool:
        """Without a namespace: in all of them, or on what is in none."""
        asked = Question.parse(text)
        attributes = client.V1ResourceAttributes(
            verb=asked.verb,
            group=asked.group,
            resource=asked.resource,
            subresource=asked.subresource,
            name=asked.name,
            namespace=namespace or "",
        )
        spec = client.V1SubjectAccessReviewSpec(
            user=self._user, groups=self._groups(), resource_attributes=attributes
        )
        review = client.V1SubjectAccessReview(spec=spec)
        return bool(self._api.create_subject_access_review(review).status.allowed)

    def _groups(self) -> list[str]:
        """Those that everybody, or every service account, is in."""
        groups = ["system:authenticated"]
        if self._user.startswith("system:serviceaccount:"):
            namespace = self._user.split(":")[2]
            groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        return groups


@contextmanager
def reviewing(kubeconfig: Path) -> Iterator[client.AuthorizationV1Api]:
    """Who may ask such questions."""
    with config.new_client_from_config(str(kubeconfig)) as connection:
        yield client.AuthorizationV1Api(connection)
