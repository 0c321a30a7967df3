package report

import (
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

type point struct{ x, y float64 }

var command = regexp.MustCompile(`([MLHVhvlmz])([^MLHVhvlmz]*)`)

// trace returns where a path goes.
func trace(t testing.TB, d string) (points []point) {
	t.Helper()
	var at, start point
	require.Equal(t, d, strings.Join(command.FindAllString(d, -1), ""), "an unknown command")
	for _, m := range command.FindAllStringSubmatch(d, -1) {
		var n []float64
		for _, f := range strings.Fields(m[2]) {
			x, err := strconv.ParseFloat(f, 64)
			require.NoError(t, err, d)
			n = append(n, x)
		}
		switch m[1] {
		case "M", "L":
			require.Len(t, n, 2, d)
			at = point{n[0], n[1]}
		case "m", "l":
			require.Zero(t, len(n)%2, d)
			for i := 0; i < len(n); i += 2 {
				at = point{at.x + n[i], at.y + n[i+1]}
				points = append(points, at)
			}
		case "H":
			at.x = n[0]
		case "V":
			at.y = n[0]
		case "h":
			at.x += n[0]
		case "v":
			at.y += n[0]
		case "z":
			at = start
		}
		if m[1] == "M" || m[1] == "m" {
			start = at
		}
		points = append(points, at)
	}
	return points
}

// Whatever a history holds, the picture is well formed and nothing lies outside of it.
func TestNothingIsDrawnOutsideOfThePicture(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 7))
		page := pageOf(t, randomHistory(r), Options{Names: map[string]string{"n1": "node 1"}, Zoom: []Window{{"w", time.Duration(r.Int64N(1e10)), time.Duration(r.Int64N(1e10))}}})
		require.NotContains(t, page, "NaN")
		for _, p := range picturesOf(page) {
			all := elements(t, p)
			height := all[0].num(t, "height")
			inside := func(x, y float64) {
				if x < -0.1 || x > width+0.1 || y < -0.1 || y > height+0.1 {
					require.Failf(t, "outside", "seed %d: %v %v of %d x %v", seed, x, y, width, height)
				}
			}
			for _, e := range all {
				switch e.name {
				case "rect":
					x, y, w, h := e.num(t, "x"), e.num(t, "y"), e.num(t, "width"), e.num(t, "height")
					require.GreaterOrEqual(t, w, 0.0)
					require.GreaterOrEqual(t, h, 0.0)
					inside(x, y)
					inside(x+w, y+h)
				case "text":
					inside(e.num(t, "x"), e.num(t, "y"))
				case "path":
					for _, at := range trace(t, e.attrs["d"]) {
						inside(at.x, at.y)
					}
				}
			}
		}
	}
}

var allKinds = []redlocktest.Kind{redlocktest.Acquired, redlocktest.Failed, redlocktest.Extended, redlocktest.Checked, redlocktest.Releasing,
	redlocktest.Released, redlocktest.Lost, redlocktest.Wrote, redlocktest.Refused, redlocktest.Unknown, redlocktest.Fault, redlocktest.Healed,
	redlocktest.NodeSays, redlocktest.Frozen, redlocktest.Delayed, redlocktest.Ended, redlocktest.Left, "nonsense"}

// randomHistory makes any records, also such as nobody would write.
func randomHistory(r *rand.Rand) *redlocktest.History {
	h := redlocktest.NewHistory()
	scale := []int64{10, 1e6, 1e10, 1e13, math.MaxInt64}[r.IntN(5)]
	moment := func() time.Duration {
		switch r.IntN(12) {
		case 0:
			return 0
		case 1:
			return time.Duration(-r.Int64N(scale))
		}
		return time.Duration(r.Int64N(scale))
	}
	pick := func(some ...string) string { return some[r.IntN(len(some))] }
	for range r.IntN(300) {
		h.Add(redlocktest.Record{At: moment(), Kind: allKinds[r.IntN(len(allKinds))], Client: pick("", "A", "B", strings.Repeat("long", 20)),
			Hold: pick("", "t1", "t2", "t3"), Resources: []string{pick("r", "s", "t", "u", "v", "w")}, Fence: r.Uint64(), Began: moment(), Deadline: moment(),
			Late: moment(), Node: pick("", "n1", "n2"), Text: pick("", "lost", "back", "unsteady", "steady", "clock", "stopped", "frozen"), Value: r.Int64()})
	}
	return h
}

func TestTimesAtTheEndsOfTheClockAreStillInOrder(t *testing.T) {
	all := elements(t, picturesOf(pageOf(t, historyOf(
		redlocktest.Record{At: math.MinInt64, Kind: redlocktest.Acquired, Client: "A", Hold: "t", Resources: []string{"r"}},
		redlocktest.Record{At: math.MaxInt64, Kind: redlocktest.Releasing, Client: "A", Hold: "t", Resources: []string{"r"}},
	), Options{}))[0])
	require.Len(t, classed(all, "hold"), 1)
	require.Greater(t, classed(all, "hold")[0].num(t, "width"), 0.9*plot)
}

// A millisecond is far less than a pixel of an hour.
func TestTheWorstOfAPixelIsDrawn(t *testing.T) {
	says := func(at time.Duration, text string) redlocktest.Record {
		return redlocktest.Record{At: at, Kind: redlocktest.NodeSays, Client: "A", Node: "n", Text: text}
	}
	all := elements(t, picturesOf(pageOf(t, historyOf(
		says(0, "steady"), says(30*time.Minute, "lost"), says(30*time.Minute+ms, "back"), says(30*time.Minute+ms, "unsteady"),
		says(30*time.Minute+2*ms, "steady"), says(time.Hour, "steady"),
	), Options{}))[0])
	require.Len(t, classed(all, "away"), 1)
	require.Empty(t, classed(all, "novote"))
}

func TestManyLossesAtOnceAreOneMark(t *testing.T) {
	h := historyOf(redlocktest.Record{At: time.Hour, Kind: redlocktest.Ended, Client: "A"})
	for i := range 1000 {
		at, token := time.Minute+time.Duration(i)*time.Microsecond, strconv.Itoa(i)
		h.Add(redlocktest.Record{At: at, Kind: redlocktest.Acquired, Client: "A", Hold: token, Resources: []string{"r"}})
		h.Add(redlocktest.Record{At: at + 1, Kind: redlocktest.Lost, Client: "A", Hold: token, Resources: []string{"r"}})
	}
	all := elements(t, picturesOf(pageOf(t, h, Options{}))[0])
	require.InDelta(t, 1, len(classed(all, "lost")), 1)
}
