package redlocktest

import "time"

// Summary is a history in numbers. In JSON durations are nanoseconds.
type Summary struct {
	Records   int           `json:"records"`
	Torn      int           `json:"torn,omitempty"` // see History.Torn
	Clients   int           `json:"clients"`
	Resources int           `json:"resources"`
	Span      time.Duration `json:"span"` // from the first record to the last

	Acquired int            `json:"acquired"` // locks handed out
	Failed   int            `json:"failed"`   // calls that got none
	Extended int            `json:"extended"` // deadlines seen to move
	Checked  int            `json:"checked"`
	Released int            `json:"released"` // Unlocks that returned nil
	Unsure   int            `json:"unsure"`   // Unlocks that returned an error
	Lost     int            `json:"lost"`     // losses told
	LostBy   map[string]int `json:"lostBy"`   // the same by LeaseOver, MaxHoldOver and "trouble"
	Ended    int            `json:"ended"`    // processes

	Wrote   int `json:"wrote"`
	Refused int `json:"refused"`
	Unknown int `json:"unknown"`
	Left    int `json:"left"`

	Faults   int            `json:"faults"`
	FaultsBy map[string]int `json:"faultsBy"` // by Text
	NodeSays map[string]int `json:"nodeSays"` // by Text

	LongestWait  time.Duration `json:"longestWait"`  // of a call that got its lock
	LongestHold  time.Duration `json:"longestHold"`  // from Acquired to Releasing or Lost
	MaxLateness  time.Duration `json:"maxLateness"`  // of a loss, told after its deadline; frozen time taken off
	MaxDelay     time.Duration `json:"maxDelay"`     // of a process's timers
	FrozenFor    time.Duration `json:"frozenFor"`    // all Frozen together
	LongestStill time.Duration `json:"longestStill"` // the longest of them
}

// Summary counts what was recorded. Of a file that cannot be read it is zero,
// and [History.Err] says why.
func (h *History) Summary() Summary {
	records, _ := h.load()
	s := Summary{Records: len(records), Torn: h.Torn(),
		LostBy: map[string]int{}, FaultsBy: map[string]int{}, NodeSays: map[string]int{}}
	clients, resources := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		clients[r.Client] = r.Client != ""
		for _, name := range r.Resources {
			resources[name] = true
		}
		s.count(r)
	}
	delete(clients, "")
	s.Clients, s.Resources = len(clients), len(resources)
	if len(records) > 0 {
		s.Span = records[len(records)-1].At - records[0].At
	}
	for _, sp := range spansOf(records) {
		s.LongestHold = max(s.LongestHold, sp.heldFor())
		s.MaxLateness = max(s.MaxLateness, sp.lateness())
	}
	return s
}

func (s *Summary) count(r Record) {
	switch r.Kind {
	case Acquired:
		s.Acquired++
		s.LongestWait = max(s.LongestWait, r.At-r.Began)
	case Failed:
		s.Failed++
	case Extended:
		s.Extended++
	case Checked:
		s.Checked++
	case Released:
		if r.Text == "" {
			s.Released++
		} else {
			s.Unsure++
		}
	case Lost:
		s.Lost++
		if r.Text == LeaseOver || r.Text == MaxHoldOver {
			s.LostBy[r.Text]++
		} else {
			s.LostBy["trouble"]++
		}
	case Wrote:
		s.Wrote++
	case Refused:
		s.Refused++
	case Unknown:
		s.Unknown++
	case Fault:
		s.Faults++
		s.FaultsBy[r.Text]++
	case NodeSays:
		s.NodeSays[r.Text]++
	case Frozen:
		s.FrozenFor += r.At - r.Began
		s.LongestStill = max(s.LongestStill, r.At-r.Began)
	case Delayed:
		s.MaxDelay = max(s.MaxDelay, r.Late)
	case Ended:
		s.Ended++
	case Left:
		s.Left++
	}
}
