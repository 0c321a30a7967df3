package redlock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers are the package's files from top to bottom; those in one string stand side by side and may use each other.
var layers = []string{
	"doc.go", "redlock.go close.go", "lock.go", "wait.go hear.go line.go look.go", "watchdog.go", "options.go url.go", "quorum.go round.go places.go", "hold.go ticket.go",
	"node.go serve.go reach.go command.go undo.go conn.go wire.go scripts.go listen.go marker.go steady.go stepped.go tend.go heal.go", "clockdrift.go clock_linux.go clock_other.go fence.go",
	"observe.go", "errors.go",
}

func layerOf(file string) int {
	return slices.IndexFunc(layers, func(l string) bool { return slices.Contains(strings.Fields(l), file) })
}

func TestAFileUsesOnlyFilesBelowIt(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	set := token.NewFileSet()
	files := map[string]*ast.File{}
	declared := map[string]string{} // top-level name to file
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		require.NotEqual(t, -1, layerOf(name), "%s has no layer", name)
		f, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		files[name] = f
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					declared[d.Name.Name] = name
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						declared[s.Name.Name] = name
					case *ast.ValueSpec:
						for _, id := range s.Names {
							declared[id.Name] = name
						}
					}
				}
			}
		}
	}
	for name, f := range files {
		for _, id := range packageNames(f) {
			if from, ok := declared[id]; ok && layerOf(from) < layerOf(name) {
				t.Errorf("%s uses %s of %s, which stands above it", name, id, from)
			}
		}
	}
}

// packageNames lists the identifiers of a file that can only mean something of this package: not those behind a dot,
// not fields, and not names that a function declares itself.
func packageNames(f *ast.File) []string {
	skip := map[*ast.Ident]bool{}
	local := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			skip[n.Sel] = true
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok {
				skip[id] = true
			}
		case *ast.Field:
			for _, id := range n.Names {
				skip[id] = true
				local[id.Name] = true
			}
		case *ast.FuncDecl:
			skip[n.Name] = true
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					if id, ok := e.(*ast.Ident); ok {
						local[id.Name] = true
					}
				}
			}
		}
		return true
	})
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !skip[id] && !local[id.Name] {
			names = append(names, id.Name)
		}
		return true
	})
	return names
}
