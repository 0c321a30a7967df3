package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// story is a history in the form in which it is drawn.
type story struct {
	from, to time.Duration // the first and the last record
	nodes    []*nodeStory
	clients  []*clientStory
	longest  float64 // the longest validity, in nanoseconds
	lanes    int     // how many resources of one client have a line of their own
}

// nodeStory is one node's row.
type nodeStory struct {
	name   string
	bands  []band
	states []change
}

// clientStory is one client's row.
type clientStory struct {
	name      string
	resources []string
	holds     []*hold
	tries     []time.Duration // calls that got no lock
	writes    []moment
	bands     []band
}

// band is a time in which something was broken.
type band struct {
	from, to time.Duration
	text     string
	clients  int // how many it was broken for, if it was not for all
	who      string
	found    bool // nobody did it: the process found that it had stood still
}

// change is the state from a moment on.
type change struct {
	at    time.Duration
	state state
}

// state is what clients think of a node. The worst of a column is drawn.
type state int

const (
	up state = iota
	noVote
	someLost // some clients cannot reach it
	allLost
)

// moment is a write, and what the store said.
type moment struct {
	at   time.Duration
	kind redlocktest.Kind
}

// hold is one ownership.
type hold struct {
	resource string
	token    string
	fence    uint64
	steps    []step
	end      time.Duration
	how      redlocktest.Kind // Releasing, Lost or Ended; "" if nothing tells of its end
	text     string
	told     time.Duration // when the loss was told
}

// step is a deadline, as known from a moment on.
type step struct{ at, deadline time.Duration }

// deadline is the last one known; 0 if none is.
func (h *hold) deadline() time.Duration { return h.steps[len(h.steps)-1].deadline }

const (
	maxLanes    = 4  // of one client
	maxAllLanes = 24 // of all clients together; with more each client has one
)

// read puts records, in the order of At, together.
func read(records []redlocktest.Record, names map[string]string) *story {
	s := &story{}
	if len(records) == 0 {
		return s
	}
	s.from, s.to = records[0].At, records[len(records)-1].At
	r := &reader{story: s, nodes: map[string]*nodeStory{}, clients: map[string]*clientStory{}, open: map[holdKey]*hold{},
		faults: map[faultKey][]*band{}, views: map[string]*view{}}
	for name := range names {
		r.node(name)
	}
	for _, rec := range records {
		r.note(rec)
	}
	r.finish(names)
	return s
}

type (
	holdKey  struct{ client, hold string }
	faultKey struct{ node, client, text string }
)

// view is what the clients think of one node.
type view struct{ lost, unsteady map[string]bool }

// reader is a story under way.
type reader struct {
	story   *story
	nodes   map[string]*nodeStory
	clients map[string]*clientStory
	open    map[holdKey]*hold
	faults  map[faultKey][]*band
	placed  []placedBand
	views   map[string]*view
	says    []redlocktest.Record
}

// placedBand is a band and where it belongs.
type placedBand struct {
	key faultKey
	*band
}

func (r *reader) node(name string) *nodeStory {
	n := r.nodes[name]
	if n == nil {
		n = &nodeStory{name: name}
		r.nodes[name] = n
		r.story.nodes = append(r.story.nodes, n)
	}
	return n
}

func (r *reader) client(name string) *clientStory {
	c := r.clients[name]
	if c == nil {
		c = &clientStory{name: name}
		r.clients[name] = c
		r.story.clients = append(r.story.clients, c)
	}
	return c
}

// note takes up one record.
func (r *reader) note(rec redlocktest.Record) {
	if rec.Node != "" {
		r.node(rec.Node)
	}
	if rec.Client != "" {
		r.client(rec.Client)
	}
	key := holdKey{rec.Client, rec.Hold}
	switch rec.Kind {
	case redlocktest.Acquired:
		r.acquired(key, rec)
	case redlocktest.Extended:
		if h := r.open[key]; h != nil && h.how == "" && rec.Deadline != 0 {
			h.steps = append(h.steps, step{rec.At, rec.Deadline})
		}
	case redlocktest.Releasing, redlocktest.Lost:
		if h := r.open[key]; h != nil && h.how == "" {
			h.how, h.end, h.told, h.text = rec.Kind, rec.At, rec.At, rec.Text
		}
	case redlocktest.Ended:
		for k, h := range r.open {
			if k.client == rec.Client && h.how == "" {
				h.how, h.end = rec.Kind, rec.At
			}
		}
	case redlocktest.Failed:
		c := r.client(rec.Client)
		c.tries = append(c.tries, rec.At)
	case redlocktest.Wrote, redlocktest.Refused, redlocktest.Unknown:
		c := r.client(rec.Client)
		c.writes = append(c.writes, moment{rec.At, rec.Kind})
	case redlocktest.Fault:
		k := faultKey{rec.Node, rec.Client, rec.Text}
		b := &band{from: rec.At, to: math.MaxInt64, text: rec.Text, who: rec.Client}
		r.faults[k] = append(r.faults[k], b)
		r.placed = append(r.placed, placedBand{k, b})
	case redlocktest.Healed:
		k := faultKey{rec.Node, rec.Client, rec.Text}
		for _, b := range r.faults[k] {
			b.to = rec.At
		}
		delete(r.faults, k)
	case redlocktest.Frozen:
		c := r.client(rec.Client)
		c.bands = append(c.bands, band{from: min(rec.Began, rec.At), to: rec.At, text: "stood still", found: true})
	case redlocktest.NodeSays:
		r.says = append(r.says, rec)
	}
}

func (r *reader) acquired(key holdKey, rec redlocktest.Record) {
	h := &hold{token: rec.Hold, fence: rec.Fence, steps: []step{{rec.At, rec.Deadline}}}
	for i, name := range rec.Resources {
		if i > 0 {
			h.resource += " + "
		}
		h.resource += name
	}
	c := r.client(rec.Client)
	c.holds = append(c.holds, h)
	if !slices.Contains(c.resources, h.resource) {
		c.resources = append(c.resources, h.resource)
	}
	r.open[key] = h
	if rec.Deadline != 0 {
		r.story.longest = max(r.story.longest, float64(rec.Deadline)-float64(rec.At))
	}
}

// finish draws the conclusions that need all records.
func (r *reader) finish(names map[string]string) {
	s, lanes := r.story, 0
	for _, c := range s.clients {
		for _, h := range c.holds {
			if h.how == "" { // the process may have died, or the history has
				h.end = s.to
			}
			if d := h.deadline(); d != 0 && d < h.end {
				h.end = d
			}
			h.end = max(h.end, h.steps[0].at)
		}
		slices.Sort(c.resources)
		lanes += max(1, min(len(c.resources), maxLanes))
	}
	if s.lanes = maxLanes; lanes > maxAllLanes {
		s.lanes = 1
	}
	r.place()
	r.look()
	byName := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	slices.SortFunc(s.clients, func(a, b *clientStory) int { return byName(a.name, b.name) })
	slices.SortFunc(s.nodes, func(a, b *nodeStory) int { return byName(cmp.Or(names[a.name], a.name), cmp.Or(names[b.name], b.name)) })
}

// place puts each band into its row. One fault of one node for several clients is one band.
func (r *reader) place() {
	type same struct {
		node, text string
		from, to   int64 // to a tenth of a second: what was done to each client in turn belongs together
	}
	shared := map[same]int{} // index into the node's bands, from 1
	const apart = int64(100 * time.Millisecond)
	for _, p := range r.placed {
		b := *p.band
		b.to = min(b.to, r.story.to)
		b.to = max(b.to, b.from)
		switch {
		case p.key.node != "" && p.key.client != "":
			n := r.node(p.key.node)
			k := same{p.key.node, p.key.text, int64(b.from) / apart, int64(b.to) / apart}
			if i := shared[k]; i > 0 {
				n.bands[i-1].clients++
				continue
			}
			b.clients = 1
			n.bands = append(n.bands, b)
			shared[k] = len(n.bands)
		case p.key.node != "":
			n := r.node(p.key.node)
			n.bands = append(n.bands, b)
		case p.key.client != "":
			c := r.client(p.key.client)
			c.bands = append(c.bands, b)
		default: // everything is broken
			for _, n := range r.story.nodes {
				n.bands = append(n.bands, b)
			}
		}
	}
	for _, n := range r.story.nodes {
		for i := range n.bands {
			if b := &n.bands[i]; b.clients == 1 && len(r.story.clients) > 1 {
				b.text += " for " + b.who
			}
		}
	}
}

// look finds what the clients together think of each node.
func (r *reader) look() {
	seers := map[string]bool{}
	for _, rec := range r.says {
		seers[rec.Client] = true
	}
	for _, rec := range r.says {
		if rec.Node == "" {
			continue
		}
		v := r.views[rec.Node]
		if v == nil {
			v = &view{map[string]bool{}, map[string]bool{}}
			r.views[rec.Node] = v
		}
		switch rec.Text {
		case "lost":
			v.lost[rec.Client] = true
		case "back":
			delete(v.lost, rec.Client)
		case "unsteady":
			v.unsteady[rec.Client] = true
		case "steady":
			delete(v.unsteady, rec.Client)
		}
		n := r.node(rec.Node)
		n.states = append(n.states, change{rec.At, v.state(len(seers))})
	}
}

func (v *view) state(clients int) state {
	switch {
	case len(v.lost) >= clients:
		return allLost
	case len(v.lost) > 0:
		return someLost
	case len(v.unsteady) > 0:
		return noVote
	}
	return up
}
