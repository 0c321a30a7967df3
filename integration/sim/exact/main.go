// Command exact makes simulations repeatable to the bit. A Go program's goroutines take their turns by chance in a few
// places: a select among ready cases, timers that fire at one moment, maps, math/rand, and slices of real time. exact
// writes copies of the runtime's files in which, inside a bubble of testing/synctest, chance is drawn from a generator of
// that bubble, and a goroutine keeps its turn; and an overlay for go build that puts them in place. With one processor and
// no garbage collection nothing is left to chance.
//
//	go test -overlay "$(go run ./sim/exact DIR)" ./sim
//
// Where the runtime is not the one that it knows, it says so and the overlay is empty: a seed is then repeated nearly, but
// not to the bit.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

type change struct{ file, old, new string }

var changes = []change{
	{"synctest.go", "	total   int // total goroutines\n", "	chance  uint64\n	total   int // total goroutines\n"},
	{"synctest.go", "// changegstatus is called when", `// draw is the next number of the bubble's own generator, splitmix64.
//
//go:nosplit
func (bubble *synctestBubble) draw() uint64 {
	bubble.chance += 0x9e3779b97f4a7c15
	z := bubble.chance
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// changegstatus is called when`},
	{"rand.go", "	mp := getg().m\n	c := &mp.chacha8\n", "	if bubble := getg().bubble; bubble != nil {\n		return bubble.draw()\n	}\n	mp := getg().m\n	c := &mp.chacha8\n"},
	{"select.go", "		j := cheaprandn(uint32(norder + 1))\n", "		j := cheaprandn(uint32(norder + 1))\n		if bubble := getg().bubble; bubble != nil {\n			j = uint32(bubble.draw() % uint64(norder+1))\n		}\n"},
	{"time.go", "			t.rand = cheaprand()\n", "			t.rand = cheaprand()\n			if bubble := getg().bubble; bubble != nil {\n				t.rand = uint32(bubble.draw())\n			}\n"},
	{"../internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1 << 60"},
	{"proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1 << 60"},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: exact DIR")
		os.Exit(2)
	}
	path, err := write(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "exact:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// write makes the files and the overlay in dir, and returns the overlay's path.
func write(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	texts := map[string]string{}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	from := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime")
	for _, c := range changes {
		if texts[c.file] == "" {
			text, err := os.ReadFile(filepath.Join(from, c.file))
			if err != nil {
				return "", err
			}
			texts[c.file] = string(text)
		}
		if strings.Count(texts[c.file], c.old) != 1 {
			fmt.Fprintf(os.Stderr, "exact: runtime/%s of %s is not the one that is known: seeds are repeated nearly, not to the bit\n", c.file, runtime.Version())
			texts = nil
			break
		}
		texts[c.file] = strings.Replace(texts[c.file], c.old, c.new, 1)
	}
	replace := map[string]string{}
	for name, text := range texts {
		to := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(from, name)] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o644)
}
