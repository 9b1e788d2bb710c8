package atoll.ui;

import atoll.http.Exchange;
import java.util.List;
import java.util.Locale;

/** How programs, agents and SDKs reach this server: what to copy, with its address in it. */
public final class ConnectPage implements Page {
    private static final List<String> LOOPBACK = List.of("localhost", "127.0.0.1", "[::1]");

    /** One thing to copy; {@code where} says what to do with it. */
    public record Snippet(String id, String title, String where, String code) {}

    public record Group(String id, String title, String about, List<Snippet> snippets) {}

    public record Model(String url, List<Group> groups, boolean mayMakeKeys) {}

    @Override
    public void addTo(Site site) {
        site.page(
                "/ui/connect",
                visit -> View.page(Nav.CONNECT, "Connect", "connect/page").with("model", model(visit)));
    }

    private static Model model(Visit visit) {
        Exchange exchange = visit.exchange();
        String scheme = "https".equalsIgnoreCase(exchange.header("X-Forwarded-Proto")) ? "https" : "http";
        String url = scheme + "://" + exchange.authority().toLowerCase(Locale.ROOT);
        return new Model(url, List.of(http(url), mcp(url), sdks(url)), visit.mayAdmin());
    }

    private static Group http(String url) {
        return new Group(
                "http",
                "HTTP",
                "Every client, in any language: one call runs code, and the id in its answer goes on with the state.",
                List.of(
                        new Snippet("env", "Shell", "Once, with your key in it", """
                                export ATOLL_URL=%s
                                export ATOLL_API_KEY=YOUR_KEY""".formatted(url)),
                        new Snippet("curl", "curl", "Runs code in a new sandbox", """
                                curl -s $ATOLL_URL/v1/code_exec \\
                                  -H "Authorization: Bearer $ATOLL_API_KEY" \\
                                  -d '{"language":"python","code":"x = 1 + 1\\nprint(x)"}'"""),
                        new Snippet("curl-on", "curl, going on", "With the id of the answer before", """
                                curl -s $ATOLL_URL/v1/code_exec \\
                                  -H "Authorization: Bearer $ATOLL_API_KEY" \\
                                  -d '{"code":"print(x)","sandbox_id":"sb-exec-…"}'"""),
                        new Snippet("curl-stream", "curl, streamed", "Output while the code runs", """
                                curl -sN $ATOLL_URL/v1/code_exec \\
                                  -H "Authorization: Bearer $ATOLL_API_KEY" \\
                                  -d '{"language":"bash","code":"for i in 1 2 3; do echo $i; sleep 1; done","stream":true}'""")));
    }

    private static Group mcp(String url) {
        return new Group(
                "mcp",
                "MCP",
                "Agents get one tool, code_exec. Streamable HTTP at " + url + "/mcp, with the same key.",
                List.of(
                        new Snippet("claude-code", "Claude Code", "In a terminal", """
                                claude mcp add --transport http atoll %s/mcp \\
                                  --header "Authorization: Bearer $ATOLL_API_KEY\"""".formatted(url)),
                        new Snippet(
                                "claude-desktop",
                                "Claude Desktop",
                                "claude_desktop_config.json; it starts programs only, so a bridge from npm stands between",
                                """
                                {
                                  "mcpServers": {
                                    "atoll": {
                                      "command": "npx",
                                      "args": ["-y", "mcp-remote", "%s/mcp",%s
                                               "--header", "Authorization:${AUTHORIZATION}"],
                                      "env": {"AUTHORIZATION": "Bearer YOUR_KEY"}
                                    }
                                  }
                                }""".formatted(url, needsPermission(url) ? " \"--allow-http\"," : "")),
                        new Snippet("cursor", "Cursor", ".cursor/mcp.json, in the project or your home", """
                                {
                                  "mcpServers": {
                                    "atoll": {
                                      "url": "%s/mcp",
                                      "headers": {"Authorization": "Bearer ${env:ATOLL_API_KEY}"}
                                    }
                                  }
                                }""".formatted(
                                        url)),
                        new Snippet("vscode", "VS Code", ".vscode/mcp.json; it asks for the key once", """
                                {
                                  "inputs": [
                                    {"type": "promptString", "id": "atoll-key", "description": "Atoll API key", "password": true}
                                  ],
                                  "servers": {
                                    "atoll": {
                                      "type": "http",
                                      "url": "%s/mcp",
                                      "headers": {"Authorization": "Bearer ${input:atoll-key}"}
                                    }
                                  }
                                }""".formatted(
                                        url))));
    }

    /** The bridge takes addresses without TLS of this machine only, unless it is told. */
    private static boolean needsPermission(String url) {
        return url.startsWith("http://")
                && LOOPBACK.stream()
                        .noneMatch(host -> url.startsWith("http://" + host + ":") || url.endsWith("//" + host));
    }

    private static Group sdks(String url) {
        return new Group(
                "sdks",
                "SDKs",
                "The unmodified SDKs of E2B work with three variables set.",
                List.of(
                        new Snippet(
                                "e2b-env",
                                "E2B, both languages",
                                "The addresses, and your key in the form that all versions take",
                                """
                                export E2B_API_URL=%1$s/compat/e2b
                                export E2B_SANDBOX_URL=%1$s/compat/e2b
                                export E2B_API_KEY="e2b_$(printf %%s 'YOUR_KEY' | od -An -vtx1 | tr -d ' \\n')\"""".formatted(url)),
                        new Snippet("e2b-python", "E2B, Python", "pip install e2b-code-interpreter", """
                                from e2b_code_interpreter import Sandbox

                                with Sandbox.create() as sandbox:
                                    sandbox.run_code("x = 1 + 1")
                                    print(sandbox.run_code("x").text)"""),
                        new Snippet("e2b-js", "E2B, JavaScript", "npm install @e2b/code-interpreter", """
                                import { Sandbox } from "@e2b/code-interpreter";

                                const sandbox = await Sandbox.create();
                                await sandbox.runCode("x = 1 + 1");
                                console.log((await sandbox.runCode("x")).text);
                                await sandbox.kill();""")));
    }
}
