package redlocktest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASummaryCounts(t *testing.T) {
	h := NewHistory()
	for _, r := range []Record{
		{At: 10, Kind: Acquired, Client: "a", Hold: "1", Resources: []string{"r", "s"}, Began: 3, Deadline: 100},
		{At: 11, Kind: Failed, Client: "b", Resources: []string{"r"}},
		{At: 12, Kind: Checked, Client: "a", Hold: "1"},
		{At: 20, Kind: Extended, Client: "a", Hold: "1", Deadline: 110},
		{At: 30, Kind: Wrote, Client: "a", Hold: "1", Value: 1},
		{At: 40, Kind: Releasing, Client: "a", Hold: "1"},
		{At: 45, Kind: Released, Client: "a", Hold: "1"},
		{At: 50, Kind: Acquired, Client: "b", Hold: "2", Resources: []string{"r"}, Began: 48, Deadline: 100},
		{At: 60, Kind: Fault, Client: "b", Text: "freeze"},
		{At: 150, Kind: Healed, Client: "b", Text: "freeze"},
		{At: 151, Kind: Frozen, Client: "b", Began: 61},
		{At: 153, Kind: Lost, Client: "b", Hold: "2", Deadline: 100, Text: "no quorum"},
		{At: 154, Kind: Refused, Client: "b", Hold: "2"},
		{At: 155, Kind: Unknown, Client: "b", Hold: "2"},
		{At: 156, Kind: Delayed, Client: "b", Began: 60, Late: 90},
		{At: 160, Kind: Acquired, Client: "b", Hold: "3", Resources: []string{"t"}, Began: 159, Deadline: 170},
		{At: 170, Kind: Lost, Client: "b", Hold: "3", Deadline: 170, Text: LeaseOver},
		{At: 175, Kind: Released, Client: "b", Hold: "3", Text: "lost"},
		{At: 180, Kind: NodeSays, Client: "b", Node: "n", Text: "lost"},
		{At: 190, Kind: Left, Node: "n", Hold: "2"},
		{At: 210, Kind: Ended, Client: "b"},
	} {
		h.Add(r)
	}
	require.Equal(t, Summary{
		Records: 21, Clients: 2, Resources: 3, Span: 200,
		Acquired: 3, Failed: 1, Extended: 1, Checked: 1, Released: 1, Unsure: 1, Lost: 2,
		LostBy: map[string]int{"trouble": 1, LeaseOver: 1}, Ended: 1,
		Wrote: 1, Refused: 1, Unknown: 1, Left: 1,
		Faults: 1, FaultsBy: map[string]int{"freeze": 1}, NodeSays: map[string]int{"lost": 1},
		LongestWait: 7, LongestHold: 103, MaxLateness: 2, MaxDelay: 90, FrozenFor: 90, LongestStill: 90,
	}, h.Summary())
	_, err := json.Marshal(h.Summary())
	require.NoError(t, err)
	require.Equal(t, time.Duration(0), NewHistory().Summary().Span)
}
