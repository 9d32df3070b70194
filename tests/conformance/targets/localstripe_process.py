"""Starts PyPI's localstripe on loopback alone, on a free port: `python -m …localstripe_process`.

Does not use its own command line, which listens on every interface and leaves a file of its
state in the machine's temporary directory.
"""

import asyncio

from aiohttp import web
from localstripe.resources import store
from localstripe.server import app


async def serve() -> None:
    type(store).dump_to_disk = lambda _: None
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"Running on http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
