"""A network that can be cut: a TCP proxy that falls silent, with all its connections open."""

import asyncio
import threading
from types import TracebackType
from typing import Self


class CuttableProxy:
    """Forwards `port` of this machine to another one, until `cut`, and again after `heal`.

    While it is cut nothing gets through and nobody is told: as with a pulled cable, not as with a
    stopped server.
    """

    def __init__(self, port: int, target_port: int) -> None:
        self._port = port
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Nothing gets through from now on."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def heal(self) -> None:
        """What was held back gets through, and all that follows."""
        self._loop.call_soon_threadsafe(self._whole.set)

    async def _listen(self) -> None:
        self._whole.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        except OSError:
            pass
        finally:
            writer.close()
            back.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65_536):
            await self._whole.wait()
            writer.write(content)
            await writer.drain()
        writer.close()
