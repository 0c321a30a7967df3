package nemesis

import "time"

// Kind is a kind of fault.
type Kind struct {
	Name string
	// Costly: it takes a majority of nodes from some client, so locks may be lost, and none had, until it is over.
	// Whatever it does, there must never be two owners, and every loss must be told in time.
	Costly bool

	scope scope
	// takes: a node that it is done to counts as away, until it has recovered.
	takes bool
	// alone: it makes a node forget unseen, which is allowed only while all other nodes are well.
	alone    bool
	min, max time.Duration // how long it lasts
	needs    need
	inflict  inflictor
}

// inflictor brings a fault about, and returns what mends it.
type inflictor func(w *World, s Step) (heal func() error, err error)

type scope int

const (
	onNode      scope = iota // one or two nodes, for everybody
	onNodes                  // a majority, for everybody
	onLinks                  // one client and up to two nodes
	onClientCut              // one client and a majority of nodes
	onAllLinks               // every client, each with two nodes of its own
	onClient                 // a client process
)

type need int

const (
	needNothing need = iota
	needAOF
	needSnapshot
	needClock
	needNetwork // containers have one that can be taken away
)

const (
	moment = 300 * time.Millisecond
	while  = 2500 * time.Millisecond
)

// Kinds are all kinds of faults, each once in a round of the plan.
var Kinds = []Kind{
	// Servers.
	{Name: "freeze", scope: onNode, takes: true, min: moment, max: while, inflict: freeze},
	{Name: "kill", scope: onNode, takes: true, min: moment, max: while, inflict: kill},
	{Name: "restart-empty", scope: onNode, takes: true, inflict: restartEmpty},
	{Name: "restart-aof", scope: onNode, takes: true, needs: needAOF, inflict: restartKeeping},
	{Name: "restart-rdb", scope: onNode, takes: true, needs: needSnapshot, inflict: restartSaved},
	{Name: "old-snapshot", scope: onNode, takes: true, needs: needSnapshot, min: moment, max: while, inflict: oldSnapshot},
	{Name: "flushall", scope: onNode, takes: true, inflict: command("FLUSHALL")},
	{Name: "script-flush", scope: onNode, inflict: command("SCRIPT", "FLUSH")},
	{Name: "client-kill", scope: onNode, inflict: clientKill},
	{Name: "out-of-memory", scope: onNode, takes: true, min: moment, max: while, inflict: outOfMemory},
	{Name: "clock-step", scope: onNode, takes: true, alone: true, needs: needClock, min: moment, max: while, inflict: clockStep},
	{Name: "clock-rate", scope: onNode, takes: true, alone: true, needs: needClock, min: time.Second, max: 2 * while, inflict: clockRate},
	{Name: "replay", scope: onNode, takes: true, inflict: replay},
	{Name: "disconnect", scope: onNode, takes: true, needs: needNetwork, min: moment, max: while, inflict: disconnect},

	// Networks, between one client and some nodes.
	{Name: "cut", scope: onLinks, takes: true, min: moment, max: while, inflict: links(Link.Cut)},
	{Name: "cut-requests", scope: onLinks, takes: true, min: moment, max: while, inflict: links(Link.CutRequests)},
	{Name: "cut-replies", scope: onLinks, takes: true, min: moment, max: while, inflict: links(Link.CutReplies)},
	{Name: "refuse", scope: onLinks, takes: true, min: moment, max: while, inflict: links(Link.Refuse)},
	{Name: "half-open", scope: onLinks, takes: true, inflict: halfOpen},
	{Name: "flapping", scope: onLinks, takes: true, min: moment, max: while, inflict: flapping},
	{Name: "resets", scope: onLinks, takes: true, min: moment, max: while, inflict: resets},
	{Name: "latency", scope: onLinks, takes: true, min: moment, max: while, inflict: latency},
	{Name: "slow-bytes", scope: onLinks, takes: true, min: moment, max: while, inflict: links(Link.SlowBytes)},
	{Name: "rings", scope: onAllLinks, takes: true, min: moment, max: while, inflict: links(Link.Cut)},

	// Client processes.
	{Name: "freeze-client", scope: onClient, min: moment, max: 2 * while, inflict: freezeClient},
	{Name: "kill-client", scope: onClient, min: moment, max: while, inflict: killClient},
	{Name: "starve-client", scope: onClient, min: time.Second, max: 2 * while, inflict: starveClient},

	// A majority.
	{Name: "freeze-majority", Costly: true, scope: onNodes, takes: true, min: moment, max: while, inflict: freeze},
	{Name: "kill-majority", Costly: true, scope: onNodes, takes: true, min: moment, max: while, inflict: kill},
	{Name: "restart-majority-empty", Costly: true, scope: onNodes, takes: true, inflict: restartEmpty},
	{Name: "flush-majority", Costly: true, scope: onNodes, takes: true, inflict: command("FLUSHALL")},
	{Name: "isolate-client", Costly: true, scope: onClientCut, takes: true, min: moment, max: while, inflict: links(Link.Cut)},
}

// find returns the kind with a name, nil if there is none.
func find(name string) *Kind {
	for i := range Kinds {
		if Kinds[i].Name == name {
			return &Kinds[i]
		}
	}
	return nil
}

// TakesNode says whether a node that this kind of fault is done to counts as away, until it has recovered.
func TakesNode(kind string) bool {
	k := find(kind)
	return k != nil && k.takes
}

// TakesMajority says whether this kind of fault may cost availability.
func TakesMajority(kind string) bool {
	k := find(kind)
	return k != nil && k.Costly
}

// Revives says whether this kind of fault may bring back keys that were gone, or let them live on.
func Revives(kind string) bool {
	switch kind {
	case "restart-aof", "restart-rdb", "old-snapshot", "kill", "kill-majority", "clock-step", "clock-rate", "replay":
		return true
	}
	return false
}
