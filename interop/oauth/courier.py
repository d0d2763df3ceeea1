"""The official Python client as a thin courier: it opens links and passes on what comes back.

Usage: courier.py [NAME...]; without names, everything.
"""

import asyncio
import json
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import asking
import parts
import harness

import anyio
import httpx2
import mcp_types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from run import STARTED, bowline, check, config

API_TOKEN = "the api token of the couriers"
SECONDS = 90


class LinksOnly(ClientSession):
    """A client that opens links and has no forms. The SDK's own declares both."""

    def _build_capabilities(self, *args, **kwargs):
        capabilities = super()._build_capabilities(*args, **kwargs)
        url = types.ElicitationCapability(url=types.UrlElicitationCapability())
        return capabilities.model_copy(update={"elicitation": url})


@asynccontextmanager
async def connected(url, elicit=None, kind=ClientSession):
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            async with kind(*streams, elicitation_callback=elicit) as session:
                await session.initialize()
                yield session


async def came_back(params, account):
    """What the authorization server sends a person back with who follows a question's link."""
    link = meta_of(params)["bowline/authorize_url"]
    return await anyio.to_thread.run_sync(asking.came_back, link, account)


def meta_of(params):
    return params.model_dump(by_alias=True)["_meta"]


async def who(session):
    return json.dumps([part.text for part in (await session.call_tool("whoami", {})).content])


async def by_answer(url):
    """The code goes back as the answer to the question."""

    async def elicit(_context, params):
        query = await came_back(params, "gina")
        content = {name: query[name] for name in ("code", "state")}
        return types.ElicitResult(action="accept", content=content)

    async with connected(url, elicit) as session:
        check("gina" in await who(session), "not gina")
        tools = [tool.name for tool in (await session.list_tools()).tools]
        check("whoami" in tools and "sign_in" not in tools, tools)


async def by_callback(url):
    """The code goes to the API, and the question is never answered."""
    withdrawn = anyio.Event()

    async def elicit(_context, params):
        query = await came_back(params, "hugo")
        callback = url.split("/mcp/")[0] + "/api/mcp-oauth/callback"
        token = {"authorization": f"Bearer {API_TOKEN}"}
        async with httpx2.AsyncClient() as http:
            delivered = await http.post(callback, params=query, headers=token)
        check(delivered.json() == {"result": "signed_in"}, delivered.text)
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()

    async with connected(url, elicit) as session:
        check("hugo" in await who(session), "not hugo")
        with anyio.fail_after(10):
            await withdrawn.wait()


async def by_link(url):
    """A client with links only: it opens one, and its call goes on."""

    async def elicit(_context, params):
        check(isinstance(params, types.ElicitRequestURLParams), params)
        check("bowline/state" not in meta_of(params), "a state")
        group.start_soon(open_link, params.url)
        return types.ElicitResult(action="accept")

    async def open_link(link):
        page = await anyio.to_thread.run_sync(lambda: parts.browse(link, account="ines"))
        check("You are signed in" in page["text"], page)

    async with anyio.create_task_group() as group:
        async with connected(url, elicit, LinksOnly) as session:
            check("ines" in await who(session), "not ines")


async def in_words(url):
    """A client that cannot be asked: sign_in, a link in words, the next call works."""
    async with connected(url) as session:
        tools = [tool.name for tool in (await session.list_tools()).tools]
        check(tools == ["sign_in"], tools)
        try:
            await session.call_tool("whoami", {})
            raise harness.Failure("served without a sign-in")
        except MCPError as error:
            check(error.error.code == -31003, error)
        told = (await session.call_tool("sign_in", {})).content[0].text
        link = re.search(r"http://\S+", told).group()
        page = await anyio.to_thread.run_sync(lambda: parts.browse(link, account="jane"))
        check("You are signed in" in page["text"], page)
        check("jane" in await who(session), "not jane")


TESTS = {
    by_answer: asking.DRIVE,
    by_callback: asking.DRIVE,
    by_link: "",
    in_words: "",
}


def main():
    names = sys.argv[1:] or [test.__name__ for test in TESTS]
    with parts.authority() as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            for test, oauth in TESTS.items():
                if test.__name__ not in names:
                    continue
                process, url = bowline(config(server, oauth), {"BOWLINE_API_TOKEN": API_TOKEN})
                with process:
                    asyncio.run(asyncio.wait_for(test(url), SECONDS))
                print(f"  {test.__name__}: {test.__doc__.splitlines()[0]}", flush=True)
    parts.check_logs(STARTED, API_TOKEN)
    print(f"{len(names)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    harness.main(main)
