package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// The interpreter finds an import by the last part of the file's name where it is used, so all cells have the same.
const cellFile = "cell.go"

func fileOf(cell int) string { return fmt.Sprintf("%d/%s", cell, cellFile) }

// part is what is compiled at once: declarations, or statements.
type part struct {
	node  ast.Node
	names []string // that it declares, as the interpreter keeps them
	short []string // that its `:=` declare
	// last is the expression that the part is, where its value may be shown.
	last ast.Expr
	// shown is node with the value of last given to the kernel.
	shown ast.Node
}

// program is a cell in its parts.
type program struct {
	parts   []part
	isWhole bool // begins with `package main`
	hasMain bool
	imports []string // paths
}

// segment is one declaration or statement at the top of a cell.
type segment struct {
	kind       token.Token // IMPORT, CONST, TYPE, VAR or FUNC for declarations, ILLEGAL for statements
	begin, end int
}

// readCell takes a cell apart.
func readCell(files *token.FileSet, number int, code string) (*program, error) {
	segments, isWhole, err := split(number, code)
	if err != nil {
		return nil, err
	}
	p := &program{isWhole: isWhole}
	for i := 0; i < len(segments); {
		j := i + 1
		isDeclaration := segments[i].kind != token.ILLEGAL
		for j < len(segments) && (segments[j].kind != token.ILLEGAL) == isDeclaration {
			// Within a file imports come first.
			if segments[j].kind == token.IMPORT && segments[j-1].kind != token.IMPORT {
				break
			}
			j++
		}
		text := code[segments[i].begin:segments[j-1].end]
		at := place(number, code, segments[i].begin)
		if isDeclaration {
			err = p.addDeclarations(files, at+text)
		} else {
			err = p.addStatements(files, at+text)
		}
		if err != nil {
			return nil, err
		}
		i = j
	}
	if isWhole {
		for _, part := range p.parts {
			if _, ok := part.node.(*ast.File); !ok {
				return nil, fmt.Errorf("%s:%d:1: a statement outside of a function, in a program that begins with `package`", fileOf(number), 1)
			}
		}
	}
	for _, part := range p.parts {
		if body, ok := part.node.(*ast.BlockStmt); ok {
			for i, statement := range body.List {
				body.List[i] = inFunction(statement)
			}
		}
		(&rewriting{}).statements(part.node)
	}
	return p, nil
}

// place makes the compiler count lines as the cell does.
func place(number int, code string, offset int) string {
	before := code[:offset]
	line := 1 + strings.Count(before, "\n")
	column := 1 + offset - (strings.LastIndexByte(before, '\n') + 1)
	return fmt.Sprintf("/*line %s:%d:%d*/", fileOf(number), line, column)
}

// split finds the declarations and statements at the top of a cell.
func split(number int, code string) (segments []segment, isWhole bool, err error) {
	files := token.NewFileSet()
	file := files.AddFile(fileOf(number), -1, len(code))
	var s scanner.Scanner
	var problems scanner.ErrorList
	s.Init(file, []byte(code), problems.Add, 0)
	type lexeme struct {
		at      int
		token   token.Token
		literal string
	}
	var current []lexeme
	depth := 0
	// Between `for`, `if` or `switch` and its `{`, a semicolon ends no statement.
	isHeader := false
	flush := func(end int) error {
		if len(current) == 0 {
			return nil
		}
		first := current[0]
		kind := token.ILLEGAL
		switch first.token {
		case token.PACKAGE:
			if len(segments) > 0 || isWhole {
				return fmt.Errorf("%s: `package` comes first in a program", file.Position(file.Pos(first.at)))
			}
			if len(current) < 2 || current[1].literal != "main" {
				return fmt.Errorf("%s: a cell is of package main", file.Position(file.Pos(first.at)))
			}
			isWhole = true
			current = nil
			return nil
		case token.IMPORT, token.CONST, token.TYPE, token.VAR:
			kind = first.token
		case token.FUNC:
			// `func name(`, or `func (receiver) name(`; else it is a function that is called on the spot.
			if len(current) > 1 && current[1].token == token.IDENT {
				kind = token.FUNC
			} else if len(current) > 1 && current[1].token == token.LPAREN {
				open, i := 0, 1
				for ; i < len(current); i++ {
					switch current[i].token {
					case token.LPAREN:
						open++
					case token.RPAREN:
						open--
					}
					if open == 0 {
						break
					}
				}
				if i+2 < len(current) && current[i+1].token == token.IDENT && current[i+2].token == token.LPAREN {
					kind = token.FUNC
				}
			}
		}
		segments = append(segments, segment{kind, first.at, end})
		current = nil
		return nil
	}
	for {
		pos, t, literal := s.Scan()
		at := file.Offset(pos)
		switch t {
		case token.EOF:
			if err := flush(len(code)); err != nil {
				return nil, false, err
			}
			if len(problems) > 0 {
				return nil, false, problems[0]
			}
			return segments, isWhole, nil
		case token.FOR, token.IF, token.SWITCH:
			isHeader = isHeader || depth == 0
		case token.LPAREN, token.LBRACE, token.LBRACK:
			if t == token.LBRACE && depth == 0 {
				isHeader = false
			}
			depth++
		case token.RPAREN, token.RBRACE, token.RBRACK:
			depth--
		case token.SEMICOLON:
			if depth <= 0 && !(isHeader && literal == ";") {
				isHeader = false
				if err := flush(at); err != nil {
					return nil, false, err
				}
				continue
			}
		}
		current = append(current, lexeme{at, t, literal})
	}
}

func (p *program) addDeclarations(files *token.FileSet, text string) error {
	file, err := parser.ParseFile(files, cellFile, "package main;"+text, parser.SkipObjectResolution)
	if err != nil {
		return firstOf(err)
	}
	one := part{node: file}
	for _, declaration := range file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			if declaration.Recv != nil {
				continue
			}
			if declaration.Name.Name == "main" {
				// The interpreter would call it again with every later cell.
				declaration.Name.Name = mainName
				p.hasMain = true
			}
			if declaration.Name.Name != "init" {
				one.names = append(one.names, declaration.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					one.names = append(one.names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						one.names = append(one.names, name.Name)
					}
				case *ast.ImportSpec:
					importPath, err := strconv.Unquote(spec.Path.Value)
					if err != nil {
						continue
					}
					p.imports = append(p.imports, importPath)
					one.names = append(one.names, importKey(importName(spec, importPath)))
				}
			}
		}
	}
	p.parts = append(p.parts, one)
	return nil
}

// importKey is how the interpreter keeps the name of an imported package.
func importKey(name string) string { return path.Join(name, cellFile) }

func importName(spec *ast.ImportSpec, importPath string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	name := path.Base(importPath)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" && path.Dir(importPath) != "." {
		name = path.Base(path.Dir(importPath))
	}
	return name
}

func (p *program) addStatements(files *token.FileSet, text string) error {
	parse := func(text string) (*ast.BlockStmt, error) {
		file, err := parser.ParseFile(files, cellFile, "package main;func _(){"+text+"\n}", parser.SkipObjectResolution)
		if err != nil {
			return nil, firstOf(err)
		}
		if len(file.Decls) != 1 {
			return nil, errors.New("a `}` too many")
		}
		return file.Decls[0].(*ast.FuncDecl).Body, nil
	}
	body, err := parse(text)
	if err != nil {
		return err
	}
	var last ast.Expr
	if n := len(body.List); n > 0 {
		if statement, ok := body.List[n-1].(*ast.ExprStmt); ok && !printsOnly(statement.X) {
			last = statement.X
			body.List = body.List[:n-1]
		}
	}
	if len(body.List) > 0 {
		one := part{node: body}
		for _, statement := range body.List {
			if labelled, ok := statement.(*ast.LabeledStmt); ok {
				statement = labelled.Stmt
			}
			if assign, ok := statement.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
				for _, left := range assign.Lhs {
					if name, ok := left.(*ast.Ident); ok && name.Name != "_" {
						one.short = append(one.short, name.Name)
					}
				}
			}
		}
		p.parts = append(p.parts, one)
	}
	if last != nil {
		plain := &ast.BlockStmt{Lbrace: body.Lbrace, List: []ast.Stmt{&ast.ExprStmt{X: last}}, Rbrace: body.Rbrace}
		// Parsed once more, since the compiler keeps what it has seen.
		again, err := parse(text)
		if err != nil {
			return err
		}
		wrapped := again.List[len(again.List)-1].(*ast.ExprStmt).X
		at := wrapped.Pos()
		call := &ast.CallExpr{Fun: kernelFunction("Result", at), Lparen: at, Args: []ast.Expr{wrapped}, Rparen: wrapped.End()}
		shown := &ast.BlockStmt{Lbrace: body.Lbrace, List: []ast.Stmt{&ast.ExprStmt{X: call}}, Rbrace: body.Rbrace}
		(&rewriting{}).statements(shown)
		p.parts = append(p.parts, part{node: plain, last: last, shown: shown})
	}
	return nil
}

func kernelFunction(name string, at token.Pos) ast.Expr {
	return &ast.SelectorExpr{X: &ast.Ident{NamePos: at, Name: innerName}, Sel: &ast.Ident{NamePos: at, Name: name}}
}

// printsOnly says whether an expression is a call of a print function, whose count of bytes nobody wants to see.
func printsOnly(expression ast.Expr) bool {
	call, ok := expression.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	name, ok := selector.X.(*ast.Ident)
	return ok && name.Name == "fmt" && (strings.HasPrefix(selector.Sel.Name, "Print") || strings.HasPrefix(selector.Sel.Name, "Fprint"))
}

func firstOf(err error) error {
	var list scanner.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		return list[0]
	}
	return err
}

// --- What is written anew -----------------------------------------------------------------------------------------------

// rewriting replaces, in a tree, what the interpreter does otherwise than Go.
type rewriting struct{ count int }

func (r *rewriting) statements(root ast.Node) {
	ast.Inspect(root, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.BlockStmt:
			r.list(node.List)
		case *ast.CaseClause:
			r.list(node.Body)
		case *ast.CommClause:
			r.list(node.Body)
		case *ast.LabeledStmt:
			node.Stmt = r.one(node.Stmt)
		case *ast.RangeStmt:
			if node.Tok == token.DEFINE {
				r.ownVariables(node.Body, node.For, node.Key, node.Value)
			}
		case *ast.ForStmt:
			if init, ok := node.Init.(*ast.AssignStmt); ok && init.Tok == token.DEFINE {
				r.ownVariables(node.Body, node.For, init.Lhs...)
			}
		}
		return true
	})
}

func (r *rewriting) list(list []ast.Stmt) {
	for i, statement := range list {
		list[i] = r.one(statement)
	}
}

func (r *rewriting) one(statement ast.Stmt) ast.Stmt {
	switch statement := statement.(type) {
	case *ast.GoStmt:
		return r.goStatement(statement)
	case *ast.RangeStmt:
		return r.countingLoop(statement)
	}
	return statement
}

// inFunction puts a loop, `if`, `switch`, `select` or block at the top of a cell into a function that is called at once, where it declares
// what the interpreter can only declare in functions: several variables by one `:=`, or that of a type switch. A `defer` in it is the
// cell's, and a jump may lead out: such statements stay as they are.
func inFunction(statement ast.Stmt) ast.Stmt {
	switch statement.(type) {
	case *ast.BlockStmt, *ast.ForStmt, *ast.IfStmt, *ast.LabeledStmt, *ast.RangeStmt, *ast.SelectStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt:
	default:
		return statement
	}
	isNeeded, isPossible := false, true
	ast.Inspect(statement, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit:
			return false
		case *ast.AssignStmt:
			isNeeded = isNeeded || node.Tok == token.DEFINE && len(node.Lhs) > 1 && len(node.Rhs) == 1
		case *ast.TypeSwitchStmt:
			_, binds := node.Assign.(*ast.AssignStmt)
			isNeeded = isNeeded || binds
		case *ast.DeferStmt:
			isPossible = false
		case *ast.BranchStmt:
			isPossible = isPossible && node.Tok != token.GOTO
		}
		return true
	})
	if !isNeeded || !isPossible {
		return statement
	}
	at := statement.Pos()
	body := &ast.BlockStmt{Lbrace: at, List: []ast.Stmt{statement}, Rbrace: statement.End()}
	return &ast.ExprStmt{X: &ast.CallExpr{
		Fun:    &ast.FuncLit{Type: &ast.FuncType{Func: at, Params: &ast.FieldList{Opening: at, Closing: at}}, Body: body},
		Lparen: at, Rparen: statement.End(),
	}}
}

// goStatement has a goroutine run below the kernel's own function, which tells of its panic: it would end the interpreter. The arguments
// are evaluated at the statement, as Go does:
//
//	go f(a, 1)   becomes   func() { b := a; go __atoll.Go(func() { f(b, 1) }) }()
//
// A function around it, since only a call has variables of its own: in the interpreter a block's are those of the function, one for all
// iterations of a loop.
func (r *rewriting) goStatement(statement *ast.GoStmt) ast.Stmt {
	at := statement.Go
	call := statement.Call
	define := &ast.AssignStmt{TokPos: at, Tok: token.DEFINE}
	keep := func(expression ast.Expr) ast.Expr {
		r.count++
		name := fmt.Sprintf("%s_%d", innerName, r.count)
		define.Lhs = append(define.Lhs, &ast.Ident{NamePos: expression.Pos(), Name: name})
		define.Rhs = append(define.Rhs, expression)
		return &ast.Ident{NamePos: expression.Pos(), Name: name}
	}
	for i, argument := range call.Args {
		switch argument := argument.(type) {
		case *ast.BasicLit, *ast.FuncLit:
		case *ast.Ident:
			if argument.Name != "nil" && argument.Name != "true" && argument.Name != "false" {
				call.Args[i] = keep(argument)
			}
		default:
			// Of constants such as 2*n the type would be lost. What is no call and names no variable is one.
			if namesSomething(argument) {
				call.Args[i] = keep(argument)
			}
		}
	}
	body := &ast.BlockStmt{Lbrace: at, List: []ast.Stmt{&ast.ExprStmt{X: call}}, Rbrace: call.End()}
	function := &ast.FuncLit{Type: &ast.FuncType{Func: at, Params: &ast.FieldList{Opening: at, Closing: at}}, Body: body}
	statement.Call = &ast.CallExpr{Fun: kernelFunction("Go", at), Lparen: at, Args: []ast.Expr{function}, Rparen: call.End()}
	if len(define.Lhs) == 0 {
		return statement
	}
	around := &ast.BlockStmt{Lbrace: at, List: []ast.Stmt{define, statement}, Rbrace: call.End()}
	return &ast.ExprStmt{X: &ast.CallExpr{
		Fun:    &ast.FuncLit{Type: &ast.FuncType{Func: at, Params: &ast.FieldList{Opening: at, Closing: at}}, Body: around},
		Lparen: at, Rparen: call.End(),
	}}
}

// ownVariables gives each iteration of a loop its own variables, as in Go since 1.22, where a function in the body may keep them: they get
// another name there. Those that the body changes, or declares anew, stay as they are.
func (r *rewriting) ownVariables(body *ast.BlockStmt, at token.Pos, variables ...ast.Expr) {
	isKept := false
	unfit := map[string]bool{}
	mark := func(expressions ...ast.Expr) {
		for _, expression := range expressions {
			if name, ok := expression.(*ast.Ident); ok {
				unfit[name.Name] = true
			}
		}
	}
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit, *ast.GoStmt:
			isKept = true
		case *ast.UnaryExpr:
			// A pointer keeps a variable too.
			_, isName := node.X.(*ast.Ident)
			isKept = isKept || isName && node.Op == token.AND
		case *ast.AssignStmt:
			mark(node.Lhs...)
		case *ast.IncDecStmt:
			mark(node.X)
		case *ast.RangeStmt:
			mark(node.Key, node.Value)
		case *ast.KeyValueExpr:
			// It may be the name of a field.
			mark(node.Key)
		case *ast.ValueSpec:
			for _, name := range node.Names {
				unfit[name.Name] = true
			}
		case *ast.Field:
			for _, name := range node.Names {
				unfit[name.Name] = true
			}
		}
		return true
	})
	if !isKept {
		return
	}
	define := &ast.AssignStmt{TokPos: at, Tok: token.DEFINE}
	renamed := map[string]string{}
	for _, variable := range variables {
		if name, ok := variable.(*ast.Ident); ok && name.Name != "_" && !unfit[name.Name] {
			r.count++
			renamed[name.Name] = fmt.Sprintf("%s_%d", innerName, r.count)
			define.Lhs = append(define.Lhs, &ast.Ident{NamePos: at, Name: renamed[name.Name]})
			define.Rhs = append(define.Rhs, &ast.Ident{NamePos: at, Name: name.Name})
		}
	}
	if len(define.Lhs) == 0 {
		return
	}
	ast.Inspect(body, func(node ast.Node) bool { return rename(node, renamed) })
	body.List = append([]ast.Stmt{define}, body.List...)
}

// rename gives a variable that is used its other name; what comes after a dot is none.
func rename(node ast.Node, renamed map[string]string) bool {
	switch node := node.(type) {
	case *ast.SelectorExpr:
		ast.Inspect(node.X, func(inner ast.Node) bool { return rename(inner, renamed) })
		return false
	case *ast.Ident:
		if other, ok := renamed[node.Name]; ok {
			node.Name = other
		}
	}
	return true
}

func namesSomething(expression ast.Expr) (found bool) {
	ast.Inspect(expression, func(node ast.Node) bool {
		if _, ok := node.(*ast.Ident); ok {
			found = true
		}
		return !found
	})
	return found
}

// countingLoop writes `for i := range 10`, which the interpreter does not know, as a loop that counts.
func (r *rewriting) countingLoop(statement *ast.RangeStmt) ast.Stmt {
	limit, ok := statement.X.(*ast.BasicLit)
	var bound ast.Expr = limit
	if !ok || limit.Kind != token.INT {
		call, isCall := statement.X.(*ast.CallExpr)
		if !isCall {
			return statement
		}
		if name, isName := call.Fun.(*ast.Ident); !isName || (name.Name != "len" && name.Name != "int" && name.Name != "cap") {
			return statement
		}
		bound = call
	}
	if statement.Value != nil {
		return statement
	}
	return r.counting(statement, bound)
}

// countVariables writes loops over a name as loops that count, in code that the interpreter does not compile as loops over a list. It says
// whether there was any.
func (r *rewriting) countVariables(root ast.Node) (found bool) {
	one := func(statement ast.Stmt) ast.Stmt {
		loop, ok := statement.(*ast.RangeStmt)
		if !ok || loop.Value != nil {
			return statement
		}
		if _, isName := loop.X.(*ast.Ident); !isName {
			return statement
		}
		found = true
		return r.counting(loop, loop.X)
	}
	ast.Inspect(root, func(node ast.Node) bool {
		list := []ast.Stmt(nil)
		switch node := node.(type) {
		case *ast.BlockStmt:
			list = node.List
		case *ast.CaseClause:
			list = node.Body
		case *ast.CommClause:
			list = node.Body
		}
		for i := range list {
			list[i] = one(list[i])
		}
		return true
	})
	return found
}

func (r *rewriting) counting(statement *ast.RangeStmt, bound ast.Expr) ast.Stmt {
	at := statement.For
	r.count++
	name := func(n string) *ast.Ident { return &ast.Ident{NamePos: at, Name: n} }
	counter, end := fmt.Sprintf("%s_%d", innerName, r.count), fmt.Sprintf("%s_%d_end", innerName, r.count)
	if statement.Key != nil {
		if key, ok := statement.Key.(*ast.Ident); !ok || key.Name != "_" {
			assign := &ast.AssignStmt{Lhs: []ast.Expr{statement.Key}, TokPos: at, Tok: statement.Tok, Rhs: []ast.Expr{name(counter)}}
			statement.Body.List = append([]ast.Stmt{assign}, statement.Body.List...)
			if statement.Tok == token.DEFINE {
				// A variable that the body does not use is no mistake here.
				statement.Body.List = append(statement.Body.List[:1:1], append([]ast.Stmt{
					&ast.AssignStmt{Lhs: []ast.Expr{name("_")}, TokPos: at, Tok: token.ASSIGN, Rhs: []ast.Expr{&ast.Ident{NamePos: at, Name: statement.Key.(*ast.Ident).Name}}},
				}, statement.Body.List[1:]...)...)
			}
		}
	}
	return &ast.ForStmt{
		For:  at,
		Init: &ast.AssignStmt{Lhs: []ast.Expr{name(counter), name(end)}, TokPos: at, Tok: token.DEFINE, Rhs: []ast.Expr{&ast.BasicLit{ValuePos: at, Kind: token.INT, Value: "0"}, bound}},
		Cond: &ast.BinaryExpr{X: name(counter), OpPos: at, Op: token.LSS, Y: name(end)},
		Post: &ast.IncDecStmt{X: name(counter), TokPos: at, Tok: token.INC},
		Body: statement.Body,
	}
}
