// What the official TypeScript client must be able to do with server-everything: the scenario of
// ../python/client.py.
//
// Usage: client.mjs URL [GONE [KIND [SERVER]]]
// GONE: the status the server has for an ended session (404); KIND: "stdio" where the server cannot tell to which
// call its requests belong; SERVER: what it calls itself
//
// Every wait is for an event and has a time limit. The wire is watched beneath the SDK, because the
// SDK does not say on which stream a message came.
import assert from "node:assert/strict";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const STEP_SECONDS = 20;
const VERSION = "2025-11-25";
const TOOLS = [
  "echo",
  "get-roots-list",
  "get-sum",
  "toggle-simulated-logging",
  "toggle-subscriber-updates",
  "trigger-elicitation-request",
  "trigger-long-running-operation",
  "trigger-sampling-request",
];
const RESOURCE = "demo://resource/dynamic/text/1";
const ROOT = { uri: "file:///interop/root", name: "interop root" };
const LONG = "trigger-long-running-operation";

/** Things that happen, and waiting for one of them. */
class Happenings {
  #waiting = new Set();

  changed() {
    for (const look of [...this.#waiting]) look();
  }

  waitFor(find) {
    return new Promise((resolve) => {
      const look = () => {
        const found = find();
        if (found === undefined || found === false) return;
        this.#waiting.delete(look);
        resolve(found);
      };
      this.#waiting.add(look);
      look();
    });
  }
}

/** A `fetch` that keeps what went over it. */
class Wire extends Happenings {
  exchanges = [];

  fetch = async (url, init = {}) => {
    const exchange = {
      verb: init.method ?? "GET",
      requestHeaders: new Headers(init.headers),
      sent: init.body ? JSON.parse(init.body) : {},
      status: undefined,
      headers: new Headers(),
      received: [],
    };
    this.exchanges.push(exchange);
    const response = await fetch(url, init);
    exchange.status = response.status;
    exchange.headers = response.headers;
    this.changed();
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
    const watched = response.body.pipeThrough(this.#watch(exchange));
    return new Response(watched, { status: response.status, headers: response.headers });
  };

  /** Passes an event stream's bytes on and puts its messages into `exchange.received`. */
  #watch(exchange) {
    const decoder = new TextDecoder();
    let pending = "";
    return new TransformStream({
      transform: (chunk, controller) => {
        pending += decoder.decode(chunk, { stream: true });
        const events = pending.replaceAll("\r\n", "\n").split("\n\n");
        pending = events.pop();
        for (const event of events) {
          const data = event.split("\n").filter((line) => line.startsWith("data:"));
          // An event with empty data only carries an id to resume from.
          const text = data.map((line) => line.slice(5)).join("\n").trim();
          if (text) exchange.received.push(JSON.parse(text));
        }
        controller.enqueue(chunk);
        this.changed();
      },
    });
  }

  /** The last request of this method, and of this tool if one is named. */
  call(method, tool) {
    return this.exchanges.findLast(
      ({ sent }) => sent.method === method && (!tool || sent.params.name === tool),
    );
  }

  onGetStream(method) {
    const gets = this.exchanges.filter(({ verb }) => verb === "GET");
    return gets.flatMap(({ received }) => received).filter((message) => message.method === method);
  }
}

/** The client's side: answers what the server asks and keeps what it tells. */
class Peer extends Happenings {
  errors = [];
  sampled = [];
  elicited = [];
  rootsAsked = 0;
  logged = [];
  updated = [];

  attach(client) {
    client.onerror = (error) => this.errors.push(error);
    client.setRequestHandler("sampling/createMessage", ({ params }) => {
      this.sampled.push(params);
      const content = { type: "text", text: "an answer from the client's model" };
      return { role: "assistant", content, model: "interop-model", stopReason: "endTurn" };
    });
    client.setRequestHandler("elicitation/create", ({ params }) => {
      this.elicited.push(params);
      return { action: "accept", content: { name: "Ada Bowline", integer: 7 } };
    });
    client.setRequestHandler("roots/list", () => {
      this.rootsAsked += 1;
      return { roots: [ROOT] };
    });
    client.setNotificationHandler("notifications/message", ({ params }) => {
      this.logged.push(params);
      this.changed();
    });
    client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
      this.updated.push(params);
      this.changed();
    });
  }
}

async function call(client, name, args = {}, options = {}) {
  const result = await client.callTool({ name, arguments: args }, options);
  assert.ok(!result.isError, `the tool failed: ${JSON.stringify(result)}`);
  return result.content.map((part) => part.text).join("\n");
}

/** A server's request came on the stream of its call or, where the server cannot tell (stdio), of the GET. */
function assertAsked(wire, tool, method) {
  if (process.argv[4] === "stdio") {
    assert.ok(wire.onGetStream(method).length, `${method} was not on the GET stream`);
  } else {
    assert.deepEqual(orderOnStream(wire, tool), [method, "result"]);
  }
}

/** What came on the stream of the last call of a tool, in order. */
function orderOnStream(wire, tool) {
  return wire.call("tools/call", tool).received.map((message) => message.method ?? "result");
}

const steps = {
  async initialise({ client, transport, wire }) {
    await client.connect(transport);
    assert.equal(client.getServerVersion().name, process.argv[5] ?? "mcp-servers/everything");
    const { headers } = wire.call("initialize");
    assert.ok(headers.get("mcp-session-id"), "no session id");
    assert.equal(transport.protocolVersion, VERSION);
    // The server asks for roots and reports on this stream, so the rest needs it open.
    const get = await wire.waitFor(() =>
      wire.exchanges.find(({ verb, status }) => verb === "GET" && status),
    );
    assert.equal(get.status, 200, "the GET stream was refused");
  },

  async listTools({ client }) {
    const { tools } = await client.listTools();
    const names = tools.map((tool) => tool.name);
    assert.equal(new Set(names).size, names.length, `a tool was listed twice: ${names}`);
    assert.deepEqual(TOOLS.filter((tool) => !names.includes(tool)), [], "missing tools");
  },

  async echo({ client }) {
    const message = "two lines\nand ünïcödé \u2028 \u{1f40b}";
    assert.equal(await call(client, "echo", { message }), `Echo: ${message}`);
  },

  async cancel({ client, wire }) {
    const abort = new AbortController();
    const cancelled = call(
      client,
      LONG,
      // Long enough for the cancellation to come in time on a busy machine.
      { duration: 2, steps: 20 },
      { signal: abort.signal, onprogress: () => abort.abort("enough") },
    );
    await assert.rejects(cancelled, "the call was not cancelled");
    const request = wire.call("tools/call", LONG);
    const { id } = request.sent;
    const told = await wire.waitFor(() =>
      wire.exchanges.find(
        ({ sent, status }) => sent.method === "notifications/cancelled" && status,
      ),
    );
    assert.equal(told.sent.params.requestId, id, "cancelled another call");
    assert.equal(told.status, 202);
    // A new call that ends after the cancelled one would have ended: the session works, and
    // nothing answers the cancelled call.
    await call(client, LONG, { duration: 2.1, steps: 1 });
    const answers = request.received.filter((message) => message.id === id && !message.method);
    assert.deepEqual(answers, [], "the cancelled call was answered");
  },

  async progress({ client, wire }) {
    const seen = [];
    const onprogress = ({ progress, total }) => seen.push([progress, total]);
    const text = await call(client, LONG, { duration: 0.5, steps: 5 }, { onprogress });
    assert.match(text, /completed/);
    assert.deepEqual(seen, [1, 2, 3, 4, 5].map((step) => [step, 5]));
    const expected = [...Array(5).fill("notifications/progress"), "result"];
    assert.deepEqual(orderOnStream(wire, LONG), expected);
  },

  async sampling({ client, wire, peer }) {
    const tool = "trigger-sampling-request";
    const text = await call(client, tool, { prompt: "a prompt from interop", maxTokens: 17 });
    assert.equal(peer.sampled.length, 1);
    const [asked] = peer.sampled;
    assert.equal(asked.maxTokens, 17);
    assert.match(asked.messages[0].content.text, /a prompt from interop/);
    assert.match(text, /an answer from the client's model/);
    assert.match(text, /interop-model/);
    assertAsked(wire, tool, "sampling/createMessage");
  },

  async elicitation({ client, wire, peer }) {
    const tool = "trigger-elicitation-request";
    const text = await call(client, tool);
    assert.equal(peer.elicited.length, 1);
    assert.deepEqual(peer.elicited[0].requestedSchema.required, ["name"]);
    assert.match(text, /- Name: Ada Bowline/);
    assert.match(text, /- Favorite Integer: 7/);
    assertAsked(wire, tool, "elicitation/create");
  },

  async roots({ client, wire, peer }) {
    const text = await call(client, "get-roots-list");
    assert.ok(peer.rootsAsked, "the server did not ask for roots");
    assert.ok(text.includes(ROOT.uri) && text.includes(ROOT.name), text);
    assert.ok(wire.onGetStream("roots/list").length, "roots/list was not on the GET stream");
  },

  async subscription({ client, wire, peer }) {
    await client.subscribeResource({ uri: RESOURCE });
    await call(client, "toggle-subscriber-updates");
    await peer.waitFor(() => peer.updated.some(({ uri }) => uri === RESOURCE));
    assert.ok(wire.onGetStream("notifications/resources/updated").length, "not on the GET stream");
    await client.unsubscribeResource({ uri: RESOURCE });
    await call(client, "toggle-subscriber-updates");
  },

  async logging({ client, wire, peer }) {
    await client.setLoggingLevel("debug");
    await call(client, "toggle-simulated-logging");
    // Over stdio there is no session id to log.
    const expected = process.argv[4] === "stdio" ? "" : "SessionId";
    await peer.waitFor(() => peer.logged.some(({ data }) => `${data}`.includes(expected)));
    assert.ok(wire.onGetStream("notifications/message").length, "not on the GET stream");
    await call(client, "toggle-simulated-logging");
  },

  async termination({ client, transport, wire, peer, url, gone }) {
    // The server goes on telling of the progress of the cancelled call.
    const errors = peer.errors.filter(({ message }) => !message.includes("unknown token"));
    assert.deepEqual(errors, [], "the transport reported errors");
    const session = transport.sessionId;
    await transport.terminateSession();
    await client.close();
    const ended = wire.exchanges.find(({ verb }) => verb === "DELETE");
    assert.ok([200, 204].includes(ended.status), `DELETE got ${ended.status}`);
    assert.equal(ended.requestHeaders.get("mcp-session-id"), session);
    const response = await fetch(url, {
      method: "POST",
      headers: {
        accept: "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": VERSION,
        "mcp-session-id": session,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" }),
    });
    assert.equal(response.status, gone, "the status of an ended session");
  },
};

async function limited(name, step) {
  let timer;
  const late = new Promise((_, reject) => {
    const expire = () => reject(new Error(`not done after ${STEP_SECONDS} s`));
    timer = setTimeout(expire, STEP_SECONDS * 1000);
  });
  try {
    await Promise.race([step, late]);
    console.log(`  ok ${name}`);
  } catch (error) {
    console.log(`  FAILED ${name}`);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

async function scenario(url, gone) {
  const wire = new Wire();
  const peer = new Peer();
  const client = new Client(
    { name: "bowline-interop", version: "0" },
    {
      capabilities: { sampling: {}, elicitation: { form: {} }, roots: { listChanged: true } },
      // The newest revision has no sessions; this asks for those that have.
      versionNegotiation: { mode: "legacy" },
    },
  );
  peer.attach(client);
  const transport = new StreamableHTTPClientTransport(new URL(url), { fetch: wire.fetch });
  const all = { client, transport, wire, peer, url, gone };
  for (const [name, step] of Object.entries(steps)) await limited(name, step(all));
}

try {
  await scenario(process.argv[2], Number(process.argv[3] ?? 404));
} catch (error) {
  console.error(error);
  process.exit(1);
}
