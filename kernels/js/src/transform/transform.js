// What types can't be erased from (enum, namespace, decorators, parameter properties, JSX), and `using`, as JavaScript of 2022.

import { transformSync } from "@babel/core";
import decorators from "@babel/plugin-proposal-decorators";
import using from "@babel/plugin-transform-explicit-resource-management";
import commonjs from "@babel/plugin-transform-modules-commonjs";
import jsx from "@babel/plugin-transform-react-jsx";
import typescript from "@babel/plugin-transform-typescript";

/** Prints `code` anew, each token on its old line. `isModule`: a file, not a cell. `toCommonJs`: `import` becomes `require`. Throws errors with `loc`. */
export function transform(code, { isJsx = false, isModule = false, toCommonJs = false } = {}) {
  const plugins = [
    [typescript, { isTSX: isJsx, onlyRemoveTypeImports: !isModule, allowDeclareFields: true, allowNamespaces: true }],
    [decorators, { version: "2023-11" }],
    using,
  ];
  if (isJsx) plugins.push([jsx, { runtime: "classic" }]);
  if (toCommonJs) plugins.push(commonjs);
  const { code: plain } = transformSync(code, {
    filename: isJsx ? "cell.tsx" : "cell.ts",
    cwd: "/",
    root: "/",
    configFile: false,
    babelrc: false,
    browserslistConfigFile: false,
    highlightCode: false,
    retainLines: true,
    sourceType: isModule ? "module" : "unambiguous",
    parserOpts: { allowAwaitOutsideFunction: true, allowReturnOutsideFunction: true, allowUndeclaredExports: true, allowSuperOutsideMethod: true },
    plugins,
  });
  return plain;
}
