// The official TypeScript client against a running Atoll. Takes ATOLL_URL and ATOLL_API_KEY; ends with 0 when every check passed.
//   npm ci --ignore-scripts && node client.mjs
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const url = new URL("/mcp", process.env.ATOLL_URL);
const headers = { Authorization: `Bearer ${process.env.ATOLL_API_KEY}` };
const language = process.env.ATOLL_LANGUAGE ?? "python";

const checks = {
  async "the tool has its schemas"(client) {
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name), ["code_exec"]);
    assert.ok(tools[0].inputSchema.properties.sandbox_id && tools[0].outputSchema.properties.state_kept);
  },
  async "state lives on between calls"(client) {
    const first = await client.callTool({ name: "code_exec", arguments: { code: "x = 41 + 1\nprint(x)", language } });
    const { output, sandbox_id } = first.structuredContent;
    assert.equal(output, "42");
    const second = await client.callTool({ name: "code_exec", arguments: { code: "print(x)", sandbox_id } });
    assert.equal(second.structuredContent.output, "42");
    assert.match(second.content[0].text, /^42\n/);
  },
  async "an exception is an error result"(client) {
    const result = await client.callTool({ name: "code_exec", arguments: { code: "raise ValueError('no')", language } });
    assert.equal(result.isError, true);
    assert.equal(result.structuredContent.error.name, "ValueError");
  },
  async "an unknown sandbox is an error result that says what to do"(client) {
    const result = await client.callTool({ name: "code_exec", arguments: { code: "1", sandbox_id: "sb-exec-00000000000000000000000000" } });
    assert.equal(result.isError, true);
    assert.match(result.content[0].text, /^sandbox_not_found: /);
  },
  async "progress brings the output while it runs"(client) {
    const seen = [];
    await client.callTool(
      { name: "code_exec", arguments: { code: "import time\nfor i in range(3): print(i, flush=True); time.sleep(0.2)", language } },
      undefined,
      { onprogress: (progress) => seen.push(progress.message) },
    );
    assert.equal(seen.join(""), "0\n1\n2\n");
    assert.ok(seen.length >= 2);
  },
  async "a cancelled call is interrupted"(client) {
    const made = await client.callTool({ name: "code_exec", arguments: { code: "kept = 7", language } });
    const { sandbox_id } = made.structuredContent;
    const abort = new AbortController();
    const call = client.callTool(
      { name: "code_exec", arguments: { code: "print('in', flush=True)\nwhile True: pass", sandbox_id } },
      undefined,
      { signal: abort.signal, onprogress: () => abort.abort() },
    );
    await assert.rejects(call);
    const after = await client.callTool({ name: "code_exec", arguments: { code: "print(kept)", sandbox_id, timeout_seconds: 5 } });
    assert.equal(after.structuredContent.output, "7");
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  const client = new Client({ name: "atoll-conformance", version: "1.0.0" });
  try {
    await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
    await check(client);
    console.log(`ok    ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name}\n      ${error.stack}`);
  } finally {
    await client.close();
  }
}
console.log(`${Object.keys(checks).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
