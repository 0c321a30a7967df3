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
	var body svg
	p.svg, body = body, p.svg
	p.body()
	body = p.svg
	p.svg = svg{}
	fmt.Fprintf(p, `<svg role="img" aria-labelledby="%s-title %s-desc" width="%d" height="%s" viewBox="0 0 %d %s">`+"\n", id, id, width,
		num(p.height), width, num(p.height))
	fmt.Fprintf(p, "<title id=\"%s-title\">%s</title>\n<desc id=\"%s-desc\">%s</desc>\n", id, escape(title), id, escape(p.describe()))
	p.WriteString(body.String())
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
	var rows svg
	y := float64(axis)
	p.svg, rows = rows, p.svg
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
	rows = p.svg

	// What lies behind: the grid, and the times in which anything was broken.
	p.svg = svg{}
	p.trouble()
	p.grid()
	p.WriteString(rows.String())
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

// columns are the pixels of the plot, each with the worst that happened in it.
type columns struct {
	p     *picture
	worst [plot]int
}

func newColumns(p *picture) *columns { return &columns{p: p} }

func (c *columns) mark(from, to time.Duration, value int) {
	if value == 0 || !c.p.inside(from, to) {
		return
	}
	first, last := int(c.p.x(from))-labels, int(c.p.x(to))-labels
	for i := max(0, first); i <= min(last, plot-1); i++ {
		c.worst[i] = max(c.worst[i], value)
	}
}

// run is some columns in a row of one value.
type run struct {
	x, width float64
	value    int
}

func (c *columns) runs() []run {
	var all []run
	for i := 0; i < plot; {
		j := i
		for j < plot && c.worst[j] == c.worst[i] {
			j++
		}
		if c.worst[i] != 0 {
			all = append(all, run{labels + float64(i), float64(j - i), c.worst[i]})
		}
		i = j
	}
	return all
}

// client draws a client's row and returns its height.
func (p *picture) client(c *clientStory, y float64) float64 {
	lanes := max(1, min(len(c.resources), p.story.lanes))
	height := float64(flagRow + lanes*laneRow + tickRow + 6)
	p.label(y+flagRow, float64(lanes*laneRow), p.name(c.name), "")
	p.still(c, y+flagRow-2, float64(lanes*laneRow)+4)
	free := float64(labels)
	flag := func(x float64, class, text string) {
		w := textWidth(text)
		if at := min(x+7, width-w-2); at >= free {
			p.text("said "+class, at, y+flagRow-5, text)
			free = at + w + 8
		}
	}
	for lane := range lanes {
		top := y + flagRow + float64(lane*laneRow)
		p.path("base", fmt.Sprintf("M%d %sH%d", labels, num(top+laneRow-2), width-margin), "")
	}
	for _, b := range c.bands[:min(len(c.bands), maxBands)] {
		if !b.found && p.inside(b.from, b.to) {
			flag(p.x(b.from)-7, "", b.text)
		}
	}
	p.holds(c, y+flagRow, lanes, flag)
	p.ticks(c, y+flagRow+float64(lanes*laneRow)+2)
	return height
}

// still draws the times in which the client's process stood still.
func (p *picture) still(c *clientStory, y, height float64) {
	if len(c.bands) <= maxBands {
		for _, b := range c.bands {
			if p.inside(b.from, b.to) {
				x := p.x(b.from)
				p.rect("still", x, y, max(2, p.x(b.to)-x), height, c.name+": "+b.text+" for "+span(b.to-b.from))
			}
		}
		return
	}
	cols := newColumns(p)
	for _, b := range c.bands {
		cols.mark(b.from, b.to, 1)
	}
	for _, r := range cols.runs() {
		p.rect("still", r.x, y, r.width, height, "")
	}
}

// laneOf is the line of a resource; those beyond the last share it.
func (c *clientStory) laneOf(resource string, lanes int) int {
	return min(max(0, slices.Index(c.resources, resource)), lanes-1)
}

// holds draws the ownerships. Those too short to be seen are drawn together.
func (p *picture) holds(c *clientStory, y float64, lanes int, flag func(x float64, class, text string)) {
	brief := make([]*columns, lanes)
	counts := make([]int, lanes)
	var losses []*hold
	drawn := 0
	for _, h := range c.holds {
		last := h.end
		if h.how == redlocktest.Lost {
			last = max(last, h.told)
		}
		if !p.inside(h.steps[0].at, last) {
			continue
		}
		lane := c.laneOf(h.resource, lanes)
		top := y + float64(lane*laneRow)
		if p.x(h.end)-p.x(h.steps[0].at) < 4 || drawn == maxHolds {
			if brief[lane] == nil {
				brief[lane] = newColumns(p)
			}
			brief[lane].mark(h.steps[0].at, h.end, 1)
			counts[lane]++
		} else {
			drawn++
			p.hold(c, h, top)
		}
		if h.how == redlocktest.Lost && h.told >= p.from && h.told <= p.to {
			losses = append(losses, h)
		}
	}
	for lane, cols := range brief {
		if cols == nil {
			continue
		}
		var d strings.Builder
		for _, r := range cols.runs() {
			w := max(r.width, 2) // one pixel would hardly be seen
			fmt.Fprintf(&d, "M%s %sh%sv%dh-%sz", num(r.x), num(y+float64(lane*laneRow)+4), num(w), laneRow-6, num(w))
		}
		p.path("brief", d.String(), fmt.Sprintf("%s: %d short holds", c.name, counts[lane]))
	}
	p.losses(c, losses, y, lanes, flag)
}

// losses marks where the holder was told.
func (p *picture) losses(c *clientStory, losses []*hold, y float64, lanes int, flag func(x float64, class, text string)) {
	drawn := map[int]int{} // by column
	for _, h := range losses {
		x := p.x(h.told)
		if drawn[int(x)]++; drawn[int(x)] > 1 {
			continue
		}
		x = min(max(x, labels+5), width-6)
		mid := y + float64(c.laneOf(h.resource, lanes)*laneRow) + laneRow/2 - 1
		late := ""
		if d := h.deadline(); d != 0 {
			late = fmt.Sprintf(", %s after its deadline", span(h.told-d))
			if h.told < d {
				late = fmt.Sprintf(", %s before its deadline", span(d-h.told))
			}
		}
		p.path("lost", fmt.Sprintf("M%s %sl10 10m0 -10l-10 10", num(x-5), num(mid-5)), c.name+" is told of the loss"+late+": "+h.text)
		flag(x, "bad", "lost")
	}
}

// hold draws one ownership: how much life it had left at each moment.
func (p *picture) hold(c *clientStory, h *hold, top float64) {
	const high = laneRow - 6
	bottom := top + laneRow - 2
	left := func(s step, at time.Duration) float64 {
		if s.deadline == 0 || p.story.longest <= 0 {
			return 1
		}
		return min(1, max(0, (float64(s.deadline)-float64(at))/p.story.longest))
	}
	x, to := p.x(h.steps[0].at), p.x(h.end)
	title := fmt.Sprintf("%s holds %s with fence %d, from %s to %s, renewed %d times; %s", c.name, h.resource, h.fence,
		span(h.steps[0].at-p.story.from), span(h.end-p.story.from), len(h.steps)-1, endText(h))
	p.rect("hold", x, bottom-high, to-x, high, title)
	if (to-x)/float64(len(h.steps)) < 3 { // the teeth would not be seen
		p.rect("life", x, bottom-high/2, to-x, high/2, title)
	} else {
		var d, renewals strings.Builder
		fmt.Fprintf(&d, "M%s %s", num(x), num(bottom))
		for i, s := range h.steps {
			next := h.end
			if i+1 < len(h.steps) {
				next = h.steps[i+1].at
			}
			from, until := max(s.at, p.from), min(next, p.to)
			if until < from {
				continue
			}
			fmt.Fprintf(&d, "L%s %sL%s %s", num(p.x(from)), num(bottom-high*left(s, from)), num(p.x(until)), num(bottom-high*left(s, until)))
			if i > 0 && s.at >= p.from && s.at <= p.to {
				fmt.Fprintf(&renewals, "M%s %sv-%d", num(p.x(s.at)), num(bottom), int(high))
			}
		}
		fmt.Fprintf(&d, "L%s %sz", num(to), num(bottom))
		p.path("life", d.String(), title)
		p.path("renewal", renewals.String(), "renewed")
	}
	switch {
	case h.how == redlocktest.Releasing && h.end <= p.to:
		p.path("released", fmt.Sprintf("M%s %sv-%d", num(to), num(bottom+2), int(high)+4), c.name+" gives it back")
	case h.how == redlocktest.Lost && h.told > h.end && h.end <= p.to:
		p.path("late", fmt.Sprintf("M%s %sH%s", num(to), num(bottom-high/2), num(p.x(h.told))), "its deadline has passed; the loss is not told yet")
	}
	if w := textWidth(short(h.resource, 24)); len(c.resources) > 1 && to-x > w+8 {
		p.rect("plate", x+3, bottom-high+1, w+2, 13, "")
		p.text("in", x+4, bottom-high+11, short(h.resource, 24))
	}
}

func endText(h *hold) string {
	switch h.how {
	case redlocktest.Releasing:
		return "given back"
	case redlocktest.Lost:
		return "lost: " + h.text
	case redlocktest.Ended:
		return "its process ended"
	}
	return "nothing tells of its end"
}

// ticks draws the tries that got no lock, and the writes.
func (p *picture) ticks(c *clientStory, y float64) {
	cols := newColumns(p)
	n := 0
	for _, at := range c.tries {
		if p.inside(at, at) {
			n++
			cols.mark(at, at, 1)
		}
	}
	var d strings.Builder
	for _, r := range cols.runs() {
		for x := r.x; x < r.x+r.width; x += 3 { // closer ones would be a bar
			fmt.Fprintf(&d, "M%s %sv6", num(x+0.5), num(y+2))
		}
	}
	p.path("try", d.String(), fmt.Sprintf("%s: %d tries without success", c.name, n))
	drawn := map[int]bool{}
	for _, w := range c.writes {
		x := min(max(p.x(w.at), labels+4), width-5)
		key := int(x)/3*4 + map[redlocktest.Kind]int{redlocktest.Wrote: 0, redlocktest.Refused: 1, redlocktest.Unknown: 2}[w.kind]
		if w.at < p.from || w.at > p.to || drawn[key] {
			continue
		}
		drawn[key] = true
		tri := fmt.Sprintf("M%s %sl4 8h-8z", num(x), num(y+3))
		switch w.kind {
		case redlocktest.Wrote:
			p.path("wrote", tri, c.name+" writes to the store")
		case redlocktest.Refused:
			p.path("refused", tri, c.name+" writes too late: the store refuses")
			if w := textWidth("refused") + 8; x+w < width {
				p.text("said bad", x+7, y+12, "refused")
			} else {
				p.text("said bad", x-w, y+12, "refused")
			}
		default:
			p.path("unknown", tri, c.name+" writes; nobody knows whether the store took it")
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
