"""What the workers say about themselves, over HTTP at their pods' addresses."""

import asyncio
import http.client
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from punctual_operator.api.names import HTTP_PORT
from punctual_operator.plan.figures import Sample, parse_sample

_TIMEOUT_SECONDS: Final = 3
_MOST_BYTES: Final = 4_000_000


class Workers:
    """Asks pods; one that does not answer has said nothing."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def samples(self, pods: Sequence[Mapping[str, Any]]) -> dict[str, Sample]:
        """The metrics of each pod that answers, by its name."""
        texts = await self._ask(pods, "/metrics", statuses=(200,))
        found = {}
        for name, text in texts.items():
            try:
                found[name] = parse_sample(text)
            except ValueError:  # something else listens there
                continue
        return found

    async def reasons(self, pods: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Why pods are not ready, by their names."""
        texts = await self._ask(pods, "/readyz", statuses=(503,))
        return {name: text.strip() for name, text in texts.items()}

    async def _ask(
        self, pods: Sequence[Mapping[str, Any]], path: str, *, statuses: Sequence[int]
    ) -> dict[str, str]:
        loop = asyncio.get_running_loop()
        addresses = {
            pod["metadata"]["name"]: pod["status"]["podIP"]
            for pod in pods
            if pod.get("status", {}).get("podIP")
        }
        answers = await asyncio.gather(
            *(
                loop.run_in_executor(self._executor, _get, address, path, statuses)
                for address in addresses.values()
            )
        )
        return {
            name: text for name, text in zip(addresses, answers, strict=True) if text is not None
        }


def _get(address: str, path: str, statuses: Sequence[int]) -> str | None:
    connection = http.client.HTTPConnection(address, HTTP_PORT, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
        return text if answer.status in statuses else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
