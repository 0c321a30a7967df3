package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Columns of a timeline.
const (
	timeWidth = 7
	whatWidth = 26
	saysWidth = 76
)

// timeline prints what happened in aligned columns: seconds since the start, what was done or which event came, and
// what the lock said to it.
type timeline struct {
	w      io.Writer
	start  time.Time
	colour bool
}

func newTimeline(w io.Writer) *timeline {
	return &timeline{w: w, start: time.Now(), colour: mayColour(w)}
}

// mayColour says whether w is a terminal that wants colours.
func mayColour(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// The styles, for terminals only.
const (
	plain = ""
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (t *timeline) paint(style, s string) string {
	if !t.colour || style == plain || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

// text prints a line that belongs to no moment.
func (t *timeline) text(style, format string, args ...any) {
	fmt.Fprintln(t.w, t.paint(style, fmt.Sprintf(format, args...)))
}

// head prints the columns' names.
func (t *timeline) head(time, what, says string) {
	t.text(dim, "%*s  %-*s  %s", timeWidth, time, whatWidth, what, says)
}

// step prints what the drill does itself.
func (t *timeline) step(what, format string, args ...any) {
	fmt.Fprintln(t.w)
	t.row(time.Now(), bold, what, fmt.Sprintf(format, args...))
}

// said prints what came of it.
func (t *timeline) said(at time.Time, style, what, format string, args ...any) {
	t.row(at, style, "  "+what, fmt.Sprintf(format, args...))
}

// row prints one entry, folded to the width of the last column; a line break in says begins an indented line.
func (t *timeline) row(at time.Time, style, what, says string) {
	when := fmt.Sprintf("%*.3f", timeWidth, max(0, at.Sub(t.start).Seconds()))
	for i, line := range fold(says, saysWidth) {
		if i > 0 {
			when, what = strings.Repeat(" ", timeWidth), ""
		}
		cell := fmt.Sprintf("%-*s", whatWidth, what)
		fmt.Fprintln(t.w, strings.TrimRight(t.paint(dim, when)+"  "+t.paint(style, cell)+"  "+line, " "))
	}
}

// fold breaks a text into lines at spaces. What continues a line is indented.
func fold(s string, width int) []string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		now := indent
		for i, word := range strings.Fields(line) {
			switch {
			case i == 0:
				now += word
			case len(now)+1+len(word) > width:
				out = append(out, now)
				now = indent + "  " + word
			default:
				now += " " + word
			}
		}
		out = append(out, now)
	}
	return out
}
