package main

import (
	"fmt"
	"strings"
)

// String shows what a reader of a trace needs.
func (s fenceState) String() string {
	var out strings.Builder
	for n, at := range s.node {
		if at == (fenceNode{}) {
			continue
		}
		fmt.Fprintf(&out, "n%d[", n)
		for _, k := range at.key {
			for i := range fenceTries {
				if k>>i&1 != 0 {
					out.WriteString("key " + fenceName(i) + " ")
				}
			}
		}
		fmt.Fprintf(&out, "count %d/%d", at.count[0], at.count[1])
		for i, a := range at.answer {
			if a != 0 {
				fmt.Fprintf(&out, " %s:%d", fenceName(i), a)
			}
			if at.has(i) {
				fmt.Fprintf(&out, " carries %s", fenceName(i))
			}
		}
		if at.unsteady {
			fmt.Fprintf(&out, " unsteady, read %05b most %d", at.read, at.most)
		}
		out.WriteString("] ")
	}
	for i, v := range s.fence {
		if v != 0 {
			fmt.Fprintf(&out, "%s=%d ", fenceName(i), v)
		}
	}
	if s.dead != 0 {
		fmt.Fprintf(&out, "dead %03b", s.dead)
	}
	return strings.TrimSpace(out.String())
}
