// A session as a Jupyter notebook: every execution of one interpreter, the oldest first, with what it printed and displayed.
"use strict";

const atollNotebook = (() => {
  const MOST_CELLS = 500;
  const AT_ONCE = 6;
  const KERNELS = {
    python: { name: "python3", display_name: "Python 3", language: "python" },
    bash: { name: "bash", display_name: "Bash", language: "bash" },
    typescript: { name: "deno", display_name: "Deno", language: "typescript" },
    javascript: { name: "deno", display_name: "Deno", language: "javascript" },
    go: { name: "gonb", display_name: "Go", language: "go" },
  };

  function outputs(execution, count) {
    const made = [];
    for (const name of ["stdout", "stderr"]) if (execution[name]) made.push({ output_type: "stream", name, text: execution[name] });
    for (const result of execution.results ?? []) {
      if (Object.keys(result.data).length === 0) continue;
      const shown = { data: result.data, metadata: result.metadata ?? {} };
      made.push(result.main ? { output_type: "execute_result", execution_count: count, ...shown } : { output_type: "display_data", ...shown });
    }
    const error = execution.error;
    if (error) made.push({ output_type: "error", ename: error.name, evalue: error.message, traceback: error.traceback.split("\n") });
    return made;
  }

  function notebook(executions) {
    const language = executions[0]?.language ?? "python";
    return {
      nbformat: 4,
      nbformat_minor: 5,
      metadata: { kernelspec: KERNELS[language], language_info: { name: language } },
      cells: executions.map((execution, i) => ({
        cell_type: "code",
        id: execution.execution_id,
        execution_count: i + 1,
        metadata: {},
        source: execution.code,
        outputs: outputs(execution, i + 1),
      })),
    };
  }

  async function read(path) {
    return (await atoll.call(path)).json();
  }

  /** All executions of a context, whole; of very many the newest. */
  async function executions(sandbox, context) {
    const list = await read(`/ui/v1/executions?sandbox_id=${sandbox}&context_id=${context}&limit=${MOST_CELLS}`);
    const ids = list.items.map((execution) => execution.execution_id).reverse();
    const whole = [];
    for (let i = 0; i < ids.length; i += AT_ONCE) whole.push(...(await Promise.all(ids.slice(i, i + AT_ONCE).map((id) => read(`/ui/v1/executions/${id}`)))));
    return { whole, cut: Boolean(list.next) };
  }

  async function download(sandbox, context) {
    const { whole, cut } = await executions(sandbox, context);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(notebook(whole), null, 1)], { type: "application/x-ipynb+json" }));
    link.download = `${sandbox}.ipynb`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    if (cut) atoll.toast(`Only the newest ${MOST_CELLS} executions are in it`);
  }

  return { download };
})();
