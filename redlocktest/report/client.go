package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

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
