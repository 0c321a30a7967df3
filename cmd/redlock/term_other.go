//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// terminal does nothing where there are no process groups.
type terminal struct{}

func openTerminal() *terminal    { return nil }
func isTerminal(f *os.File) bool { return false }

func (t *terminal) begin(*child)                                      {}
func (t *terminal) give(*child) bool                                  { return false }
func (t *terminal) takeBack(*child)                                   {}
func (t *terminal) stopped(*child, os.Signal) (suspend, proceed bool) { return false, false }
func (t *terminal) suspend(*child)                                    {}
