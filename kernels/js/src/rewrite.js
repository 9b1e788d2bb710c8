// Turns one cell (TypeScript or JavaScript) into scripts for the context's global scope.
//
// Top-level declarations become assignments to properties of the global object, so they persist, may be declared again in any
// other kind, and closures see the newest value. A cell without top-level await runs as a plain sloppy script. One with it runs inside an async
// arrow function; its function declarations then go into a script of their own that runs first (hoisting).
//
// Types are blanked out in place: lines never move, and columns move only behind text that had to be inserted, which `edits`
// records for tracebacks. What has no erasable form (enum, namespace, decorators, JSX, `using`) is handed to the runtime's transpiler.

import { Parser, tokTypes } from "acorn";
import { tsPlugin } from "@sveltejs/acorn-typescript";
import { transpile } from "#runtime";

const CHECK = "if(--__atoll_tick<0)__atoll.check();";
// A counter of its own keeps a function's loops fast: one shared by all costs a store and a load of the same word in each turn.
const COUNTER = "let __atoll_n=__atoll_tick;";
const COUNTED_CHECK = "if(--__atoll_n<0)__atoll_n=__atoll.check();";
const CHECK_EXPRESSION = "(--__atoll_tick<0&&__atoll.check(),";
const IMPORT = "__atoll.import";
const OPTIONS = {
  ecmaVersion: "latest",
  sourceType: "script",
  allowAwaitOutsideFunction: true,
  allowReturnOutsideFunction: true,
  allowImportExportEverywhere: true,
  allowHashBang: true,
  locations: true, // the TypeScript plugin needs them
};

// Hands each statement over as soon as it is parsed, so that the tree of a 10 MB cell never exists as a whole.
function statementwise(base) {
  return class extends base {
    parseTopLevel(node) {
      const exports = Object.create(null);
      let inPrologue = true;
      while (this.type !== tokTypes.eof) {
        const statement = this.parseStatement(null, true, exports);
        if (inPrologue && statement.type === "ExpressionStatement" && statement.expression.type === "Literal" && typeof statement.expression.value === "string")
          statement.directive = true;
        else inPrologue = false;
        if (statement.type !== "EmptyStatement") this.onStatement(statement);
      }
      node.body = [];
      this.next();
      node.sourceType = "script";
      return this.finishNode(node, "Program");
    }
  };
}

const CellParser = statementwise(Parser.extend(tsPlugin()));
const PlainParser = statementwise(Parser);

export class CellSyntaxError extends Error {
  constructor(message, line, column) {
    super(message);
    this.isAboutTheCell = true;
    this.line = line;
    this.column = column;
  }
}

/** Rewrites `code`. Throws CellSyntaxError with the user's line and column (both from 1). */
export function rewrite(code) {
  const start = firstToken(code);
  if (code[start] === "{") {
    const asExpression = rewriteObject(code, start);
    if (asExpression) return asExpression;
  }
  try {
    return new Rewriter(code, CellParser).run();
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return rewriteTranspiled(code, error);
  }
}

// `{a: 1}` is a block to JavaScript, but whoever writes it as a cell means the object.
function rewriteObject(code, start) {
  if (!/\}\s*$/.test(code.slice(-200))) return null;
  try {
    const node = CellParser.parseExpressionAt(code, start, OPTIONS);
    if (node.type !== "ObjectExpression" || firstToken(code, node.end) !== code.length) return null;
    const rewriter = new Rewriter(code, CellParser);
    rewriter.statement({ type: "ExpressionStatement", start, end: node.end, expression: node });
    rewriter.insert(start, "(", -1);
    rewriter.insert(node.end, ")", 1);
    return rewriter.finish();
  } catch {
    return null;
  }
}

/** The same by way of the runtime's transpiler, for what the parser here does not know. `error` is what it said. */
export function rewriteTranspiled(code, error) {
  let failure;
  for (const loader of ["ts", "tsx"]) {
    let plain;
    try {
      plain = transpile(code, loader);
    } catch (problem) {
      failure ??= problem;
      continue;
    }
    try {
      const result = new Rewriter(plain, PlainParser).run();
      result.unmapped = true;
      return result;
    } catch (inner) {
      if (!(inner instanceof SyntaxError)) throw inner;
    }
  }
  if (failure?.line > 0) throw new CellSyntaxError(failure.message, failure.line, failure.column);
  const at = error.loc ?? { line: error.line ?? 1, column: 0 };
  throw new CellSyntaxError(String(error.message).replace(/ \(\d+:\d+\)$/, ""), at.line, at.column + 1);
}

function firstToken(code, from = 0) {
  const space = /(?:\s+|\/\/[^\n]*|\/\*[^]*?\*\/)*/y;
  space.lastIndex = from;
  space.exec(code);
  return space.lastIndex;
}

class Rewriter {
  constructor(code, parser) {
    this.code = code;
    this.parser = parser;
    this.edits = []; // [start, end, text, order]
    this.functions = []; // [start, end] of top-level function declarations
    this.names = new Set();
    this.functionNames = new Set();
    this.imports = [];
    this.used = null; // identifiers in value position, collected only where an import needs them
    this.isAsync = false;
    this.last = null;
    this.enclosing = []; // the functions around the node
  }

  run() {
    const code = this.code;
    this.collectUses = /\bimport\b/.test(code);
    if (this.collectUses) this.used = new Set();
    if (code.startsWith("#!")) this.blank(0, /$/m.exec(code).index);
    const parser = new this.parser(OPTIONS, code);
    parser.onStatement = (node) => this.statement(node);
    parser.parse();
    return this.finish();
  }

  finish() {
    const { last } = this;
    let shown = last !== null;
    if (this.isAsync && last) {
      const { expression } = last;
      this.insert(expression.start, "return [(", -2, this.open(expression));
      this.insert(expression.end, ")]", 2, this.close(expression, last));
    }
    this.edits.sort((a, b) => a[0] - b[0] || a[3] - b[3] || a[1] - b[1]);
    const result = {
      names: this.names,
      functionNames: this.functionNames,
      imports: this.imports,
      used: this.used,
      isAsync: this.isAsync,
      shown,
      edits: this.edits,
      unmapped: false,
    };
    if (!this.isAsync) {
      result.body = this.emit(0, this.code.length, []);
      return result;
    }
    if (this.functions.length) result.hoisted = this.functionsOnly();
    const prefix = "(async()=>{";
    result.body = prefix + this.emit(0, this.code.length, this.functions) + "\n})()";
    result.callLine = count(result.body) + 1;
    this.edits.unshift([0, 0, prefix, -9]);
    return result;
  }

  // A parenthesized expression's node starts inside its parentheses; the statement's own borders are safe places.
  open(expression) {
    return this.last.start <= expression.start ? this.last.start : expression.start;
  }

  close(expression, statement) {
    let end = statement.end;
    if (this.code[end - 1] === ";") end--;
    return Math.max(end, expression.end);
  }

  emit(from, to, without) {
    const { code, edits } = this;
    const parts = [];
    let at = from;
    let skip = 0;
    const push = (end) => {
      while (skip < without.length && without[skip][0] < end) {
        const [start, stop] = without[skip];
        if (start >= at) parts.push(code.slice(at, start));
        parts.push(";" + blank(code.slice(Math.max(at, start) + 1, Math.min(stop, end))));
        at = Math.min(stop, end);
        if (stop > end) return;
        skip++;
      }
      if (end > at) parts.push(code.slice(at, end));
      at = Math.max(at, end);
    };
    const isSkipped = (position) => {
      const range = without[skip];
      return range && range[0] <= position && position < range[1];
    };
    for (const [start, end, text] of edits) {
      while (skip < without.length && without[skip][1] <= start) push(without[skip][1]);
      if (isSkipped(start) && start < without[skip][1]) continue;
      if (start < at) continue; // inside something already replaced
      push(start);
      parts.push(text);
      at = Math.max(at, end);
    }
    push(to);
    return parts.join("");
  }

  functionsOnly() {
    const parts = [];
    let at = 0;
    for (const [start, end] of this.functions) {
      parts.push(blank(this.code.slice(at, start)));
      const inner = new Rewriter(this.code, null);
      inner.edits = this.edits.filter((edit) => edit[0] >= start && edit[1] <= end && edit[0] < end);
      parts.push(inner.emit(start, end, []));
      at = end;
    }
    return parts.join("");
  }

  insert(position, text, order = 0, at = position) {
    this.edits.push([at, at, text, order]);
  }

  replace(start, end, text) {
    this.edits.push([start, end, text, 0]);
  }

  blank(start, end) {
    if (end > start) this.edits.push([start, end, blank(this.code.slice(start, end)), 0]);
  }

  statement(node) {
    this.last = null;
    switch (node.type) {
      case "ImportDeclaration":
        return this.importDeclaration(node);
      case "ExportAllDeclaration":
        return this.replace(node.start, node.end, ";" + blank(this.code.slice(node.start + 1, node.end)));
      case "ExportNamedDeclaration":
        if (!node.declaration || node.exportKind === "type") return this.blank(node.start, node.end);
        this.blank(node.start, node.declaration.start);
        return this.statement(node.declaration);
      case "ExportDefaultDeclaration":
        return this.exportDefault(node);
      case "VariableDeclaration":
        return this.variables(node, node.declare, ";");
      case "FunctionDeclaration":
        this.functionNames.add(node.id.name);
        this.functions.push([node.start, node.end]);
        return this.functionNode(node, node.id.name);
      case "ClassDeclaration":
        return this.classDeclaration(node);
      case "TSImportEqualsDeclaration":
        return this.importEquals(node);
      case "TSEnumDeclaration":
      case "TSModuleDeclaration":
        return this.viaTranspiler(node);
      case "ExpressionStatement":
        this.walk(node.expression, false);
        this.last = node;
        return;
      default:
        this.walk(node, false);
    }
  }

  importDeclaration(node) {
    this.replace(node.start, node.end, ";" + blank(this.code.slice(node.start + 1, node.end)));
    if (node.importKind === "type") return;
    const bindings = [];
    for (const specifier of node.specifiers) {
      if (specifier.importKind === "type") continue;
      const local = specifier.local.name;
      this.names.add(local);
      if (specifier.type === "ImportNamespaceSpecifier") bindings.push([null, local]);
      else if (specifier.type === "ImportDefaultSpecifier") bindings.push(["default", local]);
      else bindings.push([specifier.imported.name ?? specifier.imported.value, local]);
    }
    // Only types were named: TypeScript drops such an import.
    if (node.specifiers.length && !bindings.length) return;
    const attribute = node.attributes?.find((item) => (item.key.name ?? item.key.value) === "type");
    this.imports.push({ source: node.source.value, bindings, type: attribute?.value.value, start: node.start });
  }

  importEquals(node) {
    const reference = node.moduleReference;
    if (node.importKind === "type") return this.blank(node.start, node.end);
    this.names.add(node.id.name);
    if (reference.type === "TSExternalModuleReference")
      this.replace(node.start, node.end, `;${node.id.name}=require(${JSON.stringify(reference.expression.value)});`);
    else this.replace(node.start, reference.start, `;${node.id.name}=`);
  }

  exportDefault(node) {
    const { declaration } = node;
    if (declaration.type.startsWith("TS")) return this.blank(node.start, node.end);
    if (declaration.id) {
      this.blank(node.start, declaration.start);
      return this.statement(declaration);
    }
    this.replace(node.start, declaration.start, ";(" + blank(this.code.slice(node.start + 2, declaration.start)));
    const end = this.code[node.end - 1] === ";" ? node.end - 1 : node.end;
    this.insert(end, ")", 1);
    this.walk(declaration, false);
  }

  classDeclaration(node) {
    if (node.declare) return this.blank(node.start, node.end);
    this.names.add(node.id.name);
    if (usesDecorators(node)) return this.viaTranspiler(node);
    this.insert(node.start, `;${node.id.name}=`, -1);
    this.walk(node, false);
    this.insert(node.end, ";", 3);
  }

  // Declarations outside every function: `const x = 1` becomes `x = 1`.
  variables(node, isDeclare, separator) {
    if (isDeclare) return this.blank(node.start, node.end);
    const [first] = node.declarations;
    const opens = isPattern(first.id) && separator !== "in";
    let lead = blank(this.code.slice(node.start, first.start)).split("");
    if (separator === ";") lead[0] = ";";
    if (opens) {
      if (lead[lead.length - 1] === " ") lead[lead.length - 1] = "(";
      else lead.push("(");
    }
    this.replace(node.start, first.start, lead.join(""));
    node.declarations.forEach((declarator, index) => {
      for (const name of patternNames(declarator.id)) this.names.add(name);
      const isPatterned = isPattern(declarator.id) && separator !== "in";
      if (isPatterned && index > 0) this.insert(declarator.start, "(", -1);
      if (isPatterned) this.insert(declarator.end, ")", 3);
      this.declarator(declarator, false);
      if (!declarator.init && node.kind !== "var" && separator === ";") this.insert(declarator.end, "=void 0", 1);
    });
  }

  declarator(node, inFunction) {
    if (node.definite) this.blankMark(node.id.start + (node.id.name?.length ?? 0), "!");
    this.walk(node.id, inFunction);
    if (!node.init) return;
    if (node.id.type === "Identifier" && (node.init.type === "ArrowFunctionExpression" || node.init.type === "FunctionExpression")) this.functionNode(node.init, node.id.name);
    else this.walk(node.init, inFunction);
  }

  // What types can't be erased from: the runtime's transpiler prints the statement anew, then its output is rewritten like a cell.
  viaTranspiler(node, isNested = false) {
    let text = transpile(this.code.slice(node.start, node.end), "ts");
    if (!isNested) {
      const inner = new Rewriter(text, PlainParser).run();
      for (const name of inner.names) this.names.add(name);
      this.imports.push(...inner.imports.map((item) => ({ ...item, start: node.start })));
      if (inner.isAsync) this.isAsync = true;
      text = inner.body;
    }
    const wanted = count(this.code.slice(node.start, node.end));
    let surplus = count(text) - wanted;
    if (surplus > 0) text = text.replace(/([;{},])\n\s*/g, (all, mark) => (surplus-- > 0 ? mark + " " : all));
    this.replace(node.start, node.end, ";" + text.trimEnd() + "\n".repeat(Math.max(0, wanted - count(text.trimEnd()))));
  }

  children(node, inFunction) {
    for (const key in node) {
      if (key === "start" || key === "end" || key === "type" || key === "loc") continue;
      const value = node[key];
      if (value === null || typeof value !== "object") continue;
      if (Array.isArray(value)) {
        for (const item of value) if (item !== null && typeof item === "object" && item.type) this.walk(item, inFunction, node);
      } else if (typeof value.type === "string") this.walk(value, inFunction, node);
    }
  }

  walk(node, inFunction, parent) {
    const { type } = node;
    if (type.startsWith("TS")) return this.typescript(node, inFunction);
    switch (type) {
      case "Identifier":
        if (this.collectUses) this.used.add(node.name);
        if (node.optional) this.blankMark(node.start + node.name.length, "?");
        if (node.typeAnnotation) this.walk(node.typeAnnotation, inFunction);
        return;
      case "ObjectPattern":
      case "ArrayPattern":
        if (node.optional) this.blankMark((node.typeAnnotation?.start ?? node.end) - 1, "?");
        return this.children(node, inFunction);
      case "Literal":
        return;
      case "FunctionDeclaration":
      case "FunctionExpression":
      case "ArrowFunctionExpression":
        return this.functionNode(node, node.id?.name);
      case "CallExpression":
        if (node.callee.type === "Identifier") {
          for (const outer of this.enclosing) if (outer.name !== undefined && outer.name === node.callee.name) outer.callsItself = true;
        }
        return this.children(node, inFunction);
      case "ClassDeclaration":
      case "ClassExpression":
        return this.classNode(node, inFunction);
      case "StaticBlock":
        this.enclosing.push({ hasRoom: false });
        this.children(node, true);
        this.enclosing.pop();
        return;
      case "MethodDefinition":
      case "PropertyDefinition":
        return this.member(node);
      case "AwaitExpression":
        if (!inFunction) this.isAsync = true;
        return this.children(node, inFunction);
      case "ReturnStatement":
        if (!inFunction) {
          this.isAsync = true;
          if (node.argument) {
            this.insert(node.argument.start, " [(", -2, node.start + 6);
            this.insert(node.end, ")]", 2, this.code[node.end - 1] === ";" ? node.end - 1 : node.end);
          }
        }
        return this.children(node, inFunction);
      case "ImportExpression":
        this.replace(node.start, node.start + 6, IMPORT);
        return this.children(node, inFunction);
      case "MetaProperty":
        if (node.meta.name === "import") this.replace(node.start, node.end, "__atoll.meta");
        return;
      case "VariableDeclaration":
        if (node.declare) return this.blank(node.start, node.end);
        if (node.kind === "var" && !inFunction) return this.nestedVar(node, parent);
        for (const declarator of node.declarations) this.declarator(declarator, inFunction);
        return;
      case "ForStatement":
      case "WhileStatement":
      case "DoWhileStatement":
      case "ForInStatement":
      case "ForOfStatement":
        if (node.await && !inFunction) this.isAsync = true;
        this.loopBody(node.body);
        return this.children(node, inFunction);
      default:
        return this.children(node, inFunction);
    }
  }

  nestedVar(node, parent) {
    const kind = parent?.type;
    if (kind === "ForInStatement" || kind === "ForOfStatement") return this.variables(node, false, "in");
    const isListed = kind === "BlockStatement" || kind === "SwitchCase" || kind === "Program";
    const isLoop = kind === "ForStatement";
    return this.variables(node, false, isListed && !isLoop ? ";" : "");
  }

  // An agent's interrupt stops loops, and functions that call themselves, also where no signal can: in callbacks and behind an await.
  loopBody(body) {
    const frame = this.enclosing.at(-1);
    const check = frame?.hasRoom ? COUNTED_CHECK : CHECK;
    if (frame?.hasRoom) frame.hasLoop = true;
    if (body.type === "BlockStatement") return this.insert(body.start + 1, check, -3);
    this.insert(body.start, "{" + check, -3);
    this.insert(body.end, "}", 9);
  }

  functionNode(node, name) {
    this.thisParameter(node);
    const { body } = node;
    const isBlock = body.type === "BlockStatement";
    const hasRoom = isBlock && body.body[0]?.directive === undefined;
    const frame = { name, callsItself: false, hasRoom, hasLoop: false };
    this.enclosing.push(frame);
    this.children(node, true);
    this.enclosing.pop();
    if (frame.hasLoop) this.insert(body.start + 1, COUNTER, -4);
    if (!frame.callsItself) return;
    if (hasRoom) this.insert(body.start + 1, CHECK, -3);
    else if (!isBlock) {
      this.insert(body.start, CHECK_EXPRESSION, -3);
      this.insert(body.end, ")", 9);
    }
  }

  thisParameter(node) {
    const [first, second] = node.params;
    if (first?.type !== "Identifier" || first.name !== "this") return;
    this.blank(first.start, second ? second.start : first.end);
    node.params = node.params.slice(1);
  }

  classNode(node, inFunction) {
    if (usesDecorators(node)) return this.viaTranspiler(node, true);
    const { code } = this;
    if (node.abstract) this.blankWord(node.start, "abstract", node.body.start);
    if (node.implements?.length) {
      const from = node.superTypeParameters?.end ?? node.superClass?.end ?? node.typeParameters?.end ?? node.id?.end ?? node.start;
      const at = code.indexOf("implements", from);
      this.blank(at, node.body.start);
    }
    for (const key of ["typeParameters", "superTypeParameters"]) if (node[key]) this.blank(node[key].start, node[key].end);
    if (node.superClass) this.walk(node.superClass, inFunction);
    for (const member of node.body.body) this.walk(member, inFunction);
  }

  member(node) {
    const { code } = this;
    const isField = node.type === "PropertyDefinition";
    if (node.abstract || node.declare || (!isField && node.value.type !== "FunctionExpression")) return this.blank(node.start, node.end);
    const head = code.slice(node.start, node.key.start);
    if (head) for (const match of head.matchAll(/\b(?:public|private|protected|readonly|override)\b/g)) this.blank(node.start + match.index, node.start + match.index + match[0].length);
    if (node.typeParameters) this.blank(node.typeParameters.start, node.typeParameters.end);
    if (node.computed) this.walk(node.key, true);
    if (node.optional || node.definite) {
      const stop = node.typeAnnotation?.start ?? node.value?.start ?? node.end;
      const at = code.slice(node.key.end, stop).search(/[?!]/);
      if (at >= 0) this.blank(node.key.end + at, node.key.end + at + 1);
    }
    if (node.typeAnnotation) this.walk(node.typeAnnotation, true);
    if (!node.value) return;
    if (node.kind === "constructor") this.parameterProperties(node.value);
    this.walk(node.value, true);
  }

  parameterProperties(node) {
    const fields = [];
    node.params = node.params.map((parameter) => {
      if (parameter.type !== "TSParameterProperty") return parameter;
      const inner = parameter.parameter;
      this.blank(parameter.start, (inner.left ?? inner).start);
      fields.push((inner.type === "AssignmentPattern" ? inner.left : inner).name);
      return inner;
    });
    if (!fields.length) return;
    const text = fields.map((name) => `this.${name}=${name};`).join("");
    const superCall = node.body.body.find((item) => item.type === "ExpressionStatement" && item.expression.type === "CallExpression" && item.expression.callee.type === "Super");
    this.insert(superCall ? superCall.end : node.body.start + 1, (superCall ? ";" : "") + text, 0);
  }

  typescript(node, inFunction) {
    const { code } = this;
    switch (node.type) {
      case "TSAsExpression":
      case "TSSatisfiesExpression": {
        this.walk(node.expression, inFunction);
        const before = code.slice(node.expression.end, node.typeAnnotation.start);
        const at = before.lastIndexOf(node.type === "TSAsExpression" ? "as" : "satisfies");
        return this.blank(node.expression.end + at, node.end);
      }
      case "TSNonNullExpression":
        this.walk(node.expression, inFunction);
        return this.blank(node.end - 1, node.end);
      case "TSTypeAssertion":
        this.blank(node.start, code.indexOf(">", node.typeAnnotation.end) + 1);
        return this.walk(node.expression, inFunction);
      case "TSInstantiationExpression": {
        this.walk(node.expression, inFunction);
        const types = node.typeArguments ?? node.typeParameters;
        return this.blank(types.start, types.end);
      }
      case "TSEnumDeclaration":
      case "TSModuleDeclaration":
        return this.viaTranspiler(node, true);
      default:
        return this.blank(node.start, node.end);
    }
  }

  blankMark(from, mark) {
    const at = this.code.indexOf(mark, from);
    if (at >= 0) this.blank(at, at + 1);
  }

  blankWord(from, word, limit) {
    const at = this.code.indexOf(word, from);
    if (at >= 0 && at < limit) this.blank(at, at + word.length);
  }
}

function blank(text) {
  return text.replace(/[^\n\r\u2028\u2029]/g, " ");
}

function count(text) {
  return text.split("\n").length - 1;
}

function isPattern(node) {
  return node.type === "ObjectPattern" || node.type === "ArrayPattern";
}

function usesDecorators(node) {
  return Boolean(
    node.decorators?.length ||
      node.body.body.some((member) => member.decorators?.length || member.accessor || member.value?.params?.some((parameter) => parameter.decorators?.length)),
  );
}

function patternNames(node, names = []) {
  switch (node.type) {
    case "Identifier":
      names.push(node.name);
      break;
    case "ObjectPattern":
      for (const property of node.properties) patternNames(property.type === "RestElement" ? property.argument : property.value, names);
      break;
    case "ArrayPattern":
      for (const element of node.elements) if (element) patternNames(element, names);
      break;
    case "AssignmentPattern":
      patternNames(node.left, names);
      break;
    case "RestElement":
      patternNames(node.argument, names);
      break;
  }
  return names;
}

/** Maps a column (from 1) of a line (from 1) of the rewritten text back to the cell's own. */
export function originalColumn(code, edits, line, column) {
  let start = 0;
  for (let n = 1; n < line; n++) {
    const next = code.indexOf("\n", start);
    if (next < 0) return column;
    start = next + 1;
  }
  const end = code.indexOf("\n", start);
  let generated = column - 1; // characters left to use up
  let at = start;
  for (const [from, to, text] of edits) {
    if (from < at) continue;
    if (end >= 0 && from > end) break;
    const plain = from - at;
    if (generated <= plain && !(generated === plain && text.length > to - from)) break;
    generated -= plain;
    at = from;
    const kept = Math.min(text.length, to - from);
    if (generated < text.length) {
      at += Math.min(generated, kept);
      generated = 0;
      break;
    }
    generated -= text.length;
    at = to;
  }
  const limit = end < 0 ? code.length : end;
  return Math.min(at + generated, limit) - start + 1;
}
