package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// What the picture measures, in pixels.
const (
	width     = 1180
	labels    = 148 // the column of names
	margin    = 16  // at the right
	plot      = width - labels - margin
	axis      = 30
	nodeRow   = 42
	groupGap  = 14
	laneRow   = 30 // one resource of a client
	flagRow   = 18 // above the lanes: what became of a hold
	tickRow   = 16 // below: tries and writes
	barHeight = 14

	maxClients = 24 // rows; more are counted, not drawn
	maxNodes   = 24
	maxHolds   = 400 // of one client drawn singly: more do not fit, unless they overlap, which is wrong
	maxBands   = 40  // of one row, each with its text; more are drawn together
)

// picture is one piece of time.
type picture struct {
	svg
	story    *story
	names    map[string]string
	from, to time.Duration
	height   float64
	rows     []row
}

// row is where a name stands.
type row struct {
	y, height   float64
	name, under string
}

// draw draws the story from one moment to another.
func draw(s *story, names map[string]string, from, to time.Duration, id, title string) *picture {
	if to <= from {
		to = from + 1
	}
	p := &picture{story: s, names: names, from: from, to: to}
	p.body()
	body := p.String()
	p.svg = svg{}
	fmt.Fprintf(p, `<svg role="img" aria-labelledby="%s-title %s-desc" width="%d" height="%s" viewBox="0 0 %d %s">`+"\n", id, id, width,
		num(p.height), width, num(p.height))
	fmt.Fprintf(p, "<title id=\"%s-title\">%s</title>\n<desc id=\"%s-desc\">%s</desc>\n", id, escape(title), id, escape(p.describe()))
	p.WriteString(body)
	p.WriteString("</svg>\n")
	return p
}

// x is where a moment is, always inside the plot.
func (p *picture) x(at time.Duration) float64 {
	share := (float64(at) - float64(p.from)) / (float64(p.to) - float64(p.from))
	if math.IsNaN(share) {
		share = 0
	}
	return labels + plot*min(1, max(0, share))
}

// inside says whether some of a time is in the picture.
func (p *picture) inside(from, to time.Duration) bool { return to >= p.from && from <= p.to }

func (p *picture) name(node string) string { return cmp.Or(p.names[node], node) }

// body draws everything, from the top.
func (p *picture) body() {
	y := float64(axis)
	nodes, clients := p.story.nodes, p.story.clients
	for _, n := range nodes[:min(len(nodes), maxNodes)] {
		p.node(n, y)
		y += nodeRow
	}
	y += groupGap
	for _, c := range clients[:min(len(clients), maxClients)] {
		y += p.client(c, y)
	}
	p.height = y + 4
	rows := p.String()

	// What lies behind: the grid, and the times in which anything was broken.
	p.svg = svg{}
	p.trouble()
	p.grid()
	p.WriteString(rows)
}

// grid draws the lines of the time axis.
func (p *picture) grid() {
	every := tick(p.to - p.from)
	zero := p.story.from
	first := p.from
	if rest := (first - zero) % every; rest != 0 {
		first += every - rest
	}
	if first < p.from { // past the end of the clock
		return
	}
	const most = 30
	for i, at := 0, first; i < most && at <= p.to && at >= first; i, at = i+1, at+every {
		x := p.x(at)
		p.path("grid", fmt.Sprintf("M%s %dV%s", num(x), axis-6, num(p.height)), "")
		label := clockText(at-zero, every)
		class := "tick"
		if x+textWidth(label)/2 > width {
			class = "tick end"
		}
		p.text(class, x, axis-12, label)
	}
}

// tick is a round time of which some ten fit.
func tick(d time.Duration) time.Duration {
	for unit := time.Microsecond; ; unit *= 10 {
		if unit > 10*time.Second {
			break
		}
		for _, k := range []time.Duration{1, 2, 5} {
			if d/(k*unit) <= 12 {
				return k * unit
			}
		}
	}
	for _, k := range []time.Duration{1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440} {
		if d/(k*time.Minute) <= 12 {
			return k * time.Minute
		}
	}
	return max(d/10, 1)
}

func clockText(d, every time.Duration) string {
	switch {
	case every >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case every >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	case every >= time.Second:
		return fmt.Sprintf("%d s", d/time.Second)
	case every >= time.Millisecond:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return d.String()
}

// trouble draws the times in which anything was broken, behind all rows.
func (p *picture) trouble() {
	cols := newColumns(p)
	mark := func(bands []band) {
		for _, b := range bands {
			if !b.found {
				cols.mark(b.from, b.to, 1)
			}
		}
	}
	for _, n := range p.story.nodes {
		mark(n.bands)
	}
	for _, c := range p.story.clients {
		mark(c.bands)
	}
	for _, r := range cols.runs() {
		if r.value == 1 {
			p.rect("trouble", r.x, axis-6, r.width, p.height-axis+6, "")
		}
	}
}

// label puts a row's name to its left.
func (p *picture) label(y, height float64, name, under string) {
	p.rows = append(p.rows, row{y, height, name, under})
	p.text("name", 0, y+height/2+4, short(name, 20))
}

// node draws a node's row: what was done to it, and below what its clients think of it.
func (p *picture) node(n *nodeStory, y float64) {
	p.label(y+14, nodeRow-14, p.name(n.name), n.name)
	p.bands(n.bands, y, 14, p.name(n.name))
	cols, now, since := newColumns(p), up, p.story.from
	for _, c := range append(slices.Clip(n.states), change{p.story.to, up}) {
		cols.mark(since, c.at, int(now))
		now, since = c.state, c.at
	}
	p.rect("up", labels, y+18, plot, barHeight, p.name(n.name)+" is up and has its vote")
	for _, r := range cols.runs() {
		switch class, title := stateText(state(r.value)); {
		case class != "":
			p.rect("blank", r.x, y+18, r.width, barHeight, "")
			p.rect(class, r.x, y+18, r.width, barHeight, p.name(n.name)+" "+title)
			if word := stateWord[state(r.value)]; r.width > textWidth(word)+10 {
				p.rect("plate", r.x+4, y+19, textWidth(word)+4, barHeight-2, "")
				p.text("in", r.x+6, y+18+barHeight-3, word)
			}
		}
	}
}

var stateWord = map[state]string{noVote: "no vote", someLost: "partly", allLost: "away"}

func stateText(s state) (class, title string) {
	switch s {
	case noVote:
		return "novote", "has no vote: it has forgotten what it knew"
	case someLost:
		return "partly", "cannot be reached by some clients"
	case allLost:
		return "away", "cannot be reached"
	}
	return "", ""
}

// bands draws what was broken in a row, as brackets with their text.
func (p *picture) bands(bands []band, y, height float64, of string) {
	var visible []band
	for _, b := range bands {
		if p.inside(b.from, b.to) {
			visible = append(visible, b)
		}
	}
	if len(visible) > maxBands {
		cols := newColumns(p)
		for _, b := range visible {
			cols.mark(b.from, b.to, 1)
		}
		for _, r := range cols.runs() {
			if r.value == 1 {
				p.rect("fault", r.x, y+height-3, r.width, 3, fmt.Sprintf("%s: %d faults in all", of, len(visible)))
			}
		}
		return
	}
	free := float64(labels)
	for _, b := range visible {
		x, to := p.x(b.from), p.x(b.to)
		title := fmt.Sprintf("%s: %s, from %s to %s", of, b.text, span(b.from-p.story.from), span(b.to-p.story.from))
		p.rect("fault", x, y+height-3, max(2, min(to, width)-x), 3, title)
		w := textWidth(b.text)
		at := min(x, width-w-2)
		if at >= free {
			p.text("said", at, y+height-5, b.text)
			free = at + w + 8
		}
	}
}

// describe is the picture in words.
func (p *picture) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Time goes from left to right, %s in all. ", span(p.to-p.from))
	fmt.Fprintf(&b, "One row for each of %d nodes: what was done to it, and whether its clients could reach it and let it vote. ", len(p.story.nodes))
	fmt.Fprintf(&b, "One row for each of %d clients: when it held a lock and how much of the lock's life was left. ", len(p.story.clients))
	for _, c := range p.story.clients[:min(len(p.story.clients), maxClients)] {
		held, lost := 0, 0
		for _, h := range c.holds {
			if p.inside(h.steps[0].at, h.end) {
				held++
				if h.how == redlocktest.Lost {
					lost++
				}
			}
		}
		fmt.Fprintf(&b, "%s held %d, lost %d. ", c.name, held, lost)
	}
	return b.String()
}
