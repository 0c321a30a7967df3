package report

import "time"

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
