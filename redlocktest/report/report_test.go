package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
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

const ms = time.Millisecond

// historyOf makes a history of records.
func historyOf(records ...redlocktest.Record) *redlocktest.History {
	h := redlocktest.NewHistory()
	for _, r := range records {
		h.Add(r)
	}
	return h
}

func pageOf(t testing.TB, h *redlocktest.History, o Options) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, Write(&b, h, o))
	return b.String()
}

var figure = regexp.MustCompile(`(?s)<svg role="img".*?</svg>`)

func picturesOf(page string) []string { return figure.FindAllString(page, -1) }

// element is an element of a picture.
type element struct {
	name, class, text, title string
	attrs                    map[string]string
}

// elements reads a picture as XML; it fails the test if that is not well formed.
func elements(t testing.TB, picture string) []*element {
	t.Helper()
	var all, open []*element
	d := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch x := token.(type) {
		case xml.StartElement:
			e := &element{name: x.Name.Local, attrs: map[string]string{}}
			for _, a := range x.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			e.class = e.attrs["class"]
			all, open = append(all, e), append(open, e)
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += string(x)
			}
		case xml.EndElement:
			if e := open[len(open)-1]; e.name == "title" && len(open) > 1 {
				open[len(open)-2].title = e.text
			}
			open = open[:len(open)-1]
		}
	}
	require.Empty(t, open)
	return all
}

func classed(all []*element, class string) (found []*element) {
	for _, e := range all {
		if e.class == class {
			found = append(found, e)
		}
	}
	return found
}

func (e *element) num(t testing.TB, attr string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(e.attrs[attr], 64)
	require.NoError(t, err, "%s of %v", attr, e)
	require.False(t, math.IsNaN(x) || math.IsInf(x, 0))
	return x
}

// story1: client A holds the lock for 10 s, renews it once, node n1 is away for 2 s, A loses the lock.
func story1() *redlocktest.History {
	at := func(ms int) time.Duration { return time.Hour + time.Duration(ms)*time.Millisecond }
	return historyOf(
		redlocktest.Record{At: at(0), Kind: redlocktest.Acquired, Client: "A", Hold: "t1", Resources: []string{"r"}, Fence: 7, Deadline: at(4000)},
		redlocktest.Record{At: at(1000), Kind: redlocktest.Fault, Node: "n1:1", Text: "stopped"},
		redlocktest.Record{At: at(1500), Kind: redlocktest.NodeSays, Client: "A", Node: "n1:1", Text: "lost"},
		redlocktest.Record{At: at(2000), Kind: redlocktest.Extended, Client: "A", Hold: "t1", Resources: []string{"r"}, Deadline: at(6000)},
		redlocktest.Record{At: at(2500), Kind: redlocktest.Failed, Client: "B", Resources: []string{"r"}, Text: "held"},
		redlocktest.Record{At: at(3000), Kind: redlocktest.Healed, Node: "n1:1", Text: "stopped"},
		redlocktest.Record{At: at(3500), Kind: redlocktest.NodeSays, Client: "A", Node: "n1:1", Text: "back"},
		redlocktest.Record{At: at(3500), Kind: redlocktest.NodeSays, Client: "A", Node: "n1:1", Text: "unsteady"},
		redlocktest.Record{At: at(5000), Kind: redlocktest.NodeSays, Client: "A", Node: "n1:1", Text: "steady"},
		redlocktest.Record{At: at(6001), Kind: redlocktest.Lost, Client: "A", Hold: "t1", Resources: []string{"r"}, Deadline: at(6000), Text: "no quorum"},
		redlocktest.Record{At: at(10000), Kind: redlocktest.NodeSays, Client: "A", Node: "n2:1", Text: "steady"},
	)
}

func TestEachNodeAndEachClientHasARow(t *testing.T) {
	names := map[string]string{"n1:1": "node 1", "n2:1": "node 2", "n3:1": "node 3"}
	page := pageOf(t, story1(), Options{Names: names})
	pictures := picturesOf(page)
	require.Len(t, pictures, 1)
	var rows []string
	for _, e := range classed(elements(t, pictures[0]), "name") {
		rows = append(rows, e.text)
	}
	require.Equal(t, []string{"node 1", "node 2", "node 3", "A", "B"}, rows, "node 3 was never heard of, but named")
}

func TestThePictureShowsWhenThingsHappened(t *testing.T) {
	all := elements(t, picturesOf(pageOf(t, story1(), Options{}))[0])
	const total = 10000 * 61.0 / 60 // with the room at the end
	x := func(ms float64) float64 { return labels + plot*ms/total }
	near := func(want float64, e *element, attr string) {
		t.Helper()
		require.InDelta(t, want, e.num(t, attr), 1.1)
	}
	span := func(class string, from, to float64) {
		t.Helper()
		found := classed(all, class)
		require.Len(t, found, 1, class)
		near(x(from), found[0], "x")
		require.InDelta(t, x(to)-x(from), found[0].num(t, "width"), 1.6, class)
	}
	span("fault", 1000, 3000)
	span("trouble", 1000, 3000)
	span("away", 1500, 3500)
	span("novote", 3500, 5000)
	span("hold", 0, 6000)
	require.Len(t, classed(all, "lost"), 1)
	require.Contains(t, classed(all, "lost")[0].title, "1.0 ms after its deadline")
	require.Len(t, classed(all, "renewal"), 1)
	near(x(2000), &element{attrs: map[string]string{"x": strings.Fields(strings.TrimPrefix(classed(all, "renewal")[0].attrs["d"], "M"))[0]}}, "x")
	require.Contains(t, classed(all, "try")[0].title, "B: 1 tries")
}

// The life that is left is a saw: full after each renewal, nothing at the deadline.
func TestAHoldShowsHowMuchOfItsLifeIsLeft(t *testing.T) {
	all := elements(t, picturesOf(pageOf(t, story1(), Options{}))[0])
	points := trace(t, classed(all, "life")[0].attrs["d"])
	const high = laneRow - 6
	bottom := points[0].y
	var heights []float64
	for _, p := range points[1 : len(points)-2] {
		heights = append(heights, math.Round((bottom-p.y)/high*100)/100)
	}
	require.Equal(t, []float64{1, 0.5, 1, 0}, heights)
}

func TestNothingOfAHistoryIsTakenForMarkup(t *testing.T) {
	evil := `<script>alert("x")</script>&'` + "\x00\xff\u0007"
	records := []redlocktest.Record{}
	for i, kind := range []redlocktest.Kind{redlocktest.Acquired, redlocktest.Fault, redlocktest.NodeSays, redlocktest.Wrote, redlocktest.Refused, redlocktest.Healed,
		redlocktest.Lost, redlocktest.Failed, redlocktest.Left, redlocktest.Frozen, redlocktest.Kind(evil)} {
		records = append(records, redlocktest.Record{At: time.Duration(i+1) * time.Second, Kind: kind, Client: evil, Node: evil, Hold: evil, Text: evil,
			Resources: []string{evil, evil + "2"}, Deadline: time.Minute})
	}
	records = append(records, redlocktest.Record{At: 20 * time.Second, Kind: redlocktest.Fault, Client: evil, Text: evil})
	v := &redlocktest.Violation{Rule: evil, Text: evil, Records: records[:3]}
	page := pageOf(t, historyOf(records...), Options{Title: evil, Text: evil, Promises: []Promise{{evil, true}, {evil, false}},
		Names: map[string]string{evil: evil, "other": evil}, Err: errors.Join(v, errors.New(evil)), Facts: []Fact{{evil, evil}}, Zoom: []Window{{evil, 0, time.Second}}})
	require.NotContains(t, page, "<script")
	require.NotContains(t, page, "\x00")
	for _, p := range picturesOf(page) {
		elements(t, p)
	}
}

func TestAPageNeedsNothingElse(t *testing.T) {
	page := pageOf(t, story1(), Options{})
	for _, reference := range []string{"http:", "https:", "//", "<script", "<link", "<img", "@import", "src=", "@font-face"} {
		require.NotContains(t, strings.ReplaceAll(page, "</", ""), reference)
	}
	for _, m := range regexp.MustCompile(`url\(([^)]*)\)`).FindAllStringSubmatch(page, -1) {
		require.Regexp(t, `^#[a-z]+$`, m[1])
		require.Contains(t, page, `id="`+m[1][1:]+`"`)
	}
}

func TestAPictureIsToldInWordsToo(t *testing.T) {
	page := pageOf(t, story1(), Options{Title: "T"})
	all := elements(t, picturesOf(page)[0])
	ids := map[string]string{}
	for _, e := range all {
		ids[e.attrs["id"]] = e.text
	}
	for _, id := range strings.Fields(all[0].attrs["aria-labelledby"]) {
		require.NotEmpty(t, ids[id], id)
	}
	require.Contains(t, page, "A held 1, lost 1.")
	require.Contains(t, page, "is told that the lock is lost, 1.0 ms after its deadline: no quorum")
}

func TestABrokenPromiseAndAViolationStandOut(t *testing.T) {
	good := pageOf(t, story1(), Options{Promises: []Promise{{"p1", true}, {"p2", true}}})
	require.Contains(t, good, "2 of 2 promises kept")
	require.NotContains(t, good, "✗")
	bad := pageOf(t, story1(), Options{Promises: []Promise{{"p1", true}, {"p2", false}}})
	require.Contains(t, bad, "1 of 2 promises kept")
	require.Contains(t, bad, "✗ broken:")
	records := story1().Records()
	wrong := pageOf(t, story1(), Options{Err: errors.Join(nil, fmt.Errorf("checked: %w", errors.Join(&redlocktest.Violation{Rule: "exclusive", Text: "two at once", Records: records[2:4]})))})
	require.Contains(t, wrong, "a check failed")
	require.Contains(t, wrong, "two at once")
	require.Contains(t, wrong, "Violation 1: exclusive")
	require.Len(t, picturesOf(wrong), 2, "it is drawn larger")
}

func TestAHistoryThatCannotBeReadIsAnError(t *testing.T) {
	h, err := redlocktest.OpenHistory(t.TempDir() + "/h")
	require.NoError(t, err)
	require.NoError(t, h.Close())
	h.Add(redlocktest.Record{Kind: redlocktest.Ended})
	require.Error(t, Write(io.Discard, h, Options{}))
}

func TestAnEmptyHistoryIsAPage(t *testing.T) {
	page := pageOf(t, redlocktest.NewHistory(), Options{})
	require.Empty(t, picturesOf(page))
	require.Contains(t, page, "locks acquired")
}

func TestSeveralHistoriesShareAPage(t *testing.T) {
	var b strings.Builder
	require.NoError(t, WriteAll(&b, "Both", "", []Section{{story1(), Options{Title: "one", Promises: []Promise{{"x", false}}}}, {story1(), Options{Title: "two"}}}))
	require.Len(t, picturesOf(b.String()), 2)
	require.Contains(t, b.String(), `<a href="#s1">one</a> <span class="bad">`)
	require.Contains(t, b.String(), `<a href="#s2">two</a> <span class="good">`)
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(b.String(), -1) {
		require.False(t, ids[m[1]], "twice: %s", m[1])
		ids[m[1]] = true
	}
}

// An hour of a hundred thousand records stays small, and its losses are drawn larger.
func TestALongHistoryStaysSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	h := redlocktest.NewHistory()
	const clients = 12
	for c := range clients {
		for at := time.Duration(r.IntN(1000)) * ms; at < time.Hour; {
			token, began := fmt.Sprint(c, at), at
			resource := []string{fmt.Sprintf("r%d", r.IntN(8))}
			add := func(kind redlocktest.Kind) {
				h.Add(redlocktest.Record{At: at, Kind: kind, Client: fmt.Sprintf("client %d", c), Hold: token, Resources: resource, Began: began, Deadline: at + 3*time.Second, Text: "no quorum"})
			}
			add(redlocktest.Failed)
			add(redlocktest.Acquired)
			for range r.IntN(4) {
				at += time.Second
				add(redlocktest.Extended)
			}
			at += time.Duration(r.IntN(900)) * ms
			add(redlocktest.Wrote)
			if r.IntN(100) == 0 {
				add(redlocktest.Lost)
			} else {
				add(redlocktest.Releasing)
			}
			at += time.Duration(r.IntN(500)) * ms
		}
	}
	for at := time.Duration(0); at < time.Hour; at += 3 * time.Second {
		node := fmt.Sprintf("n%d", r.IntN(5))
		h.Add(redlocktest.Record{At: at, Kind: redlocktest.Fault, Node: node, Text: "frozen"})
		h.Add(redlocktest.Record{At: at + time.Second, Kind: redlocktest.NodeSays, Client: "client 1", Node: node, Text: "lost"})
		h.Add(redlocktest.Record{At: at + 2*time.Second, Kind: redlocktest.Healed, Node: node, Text: "frozen"})
		h.Add(redlocktest.Record{At: at + 2*time.Second, Kind: redlocktest.NodeSays, Client: "client 1", Node: node, Text: "back"})
	}
	require.Greater(t, len(h.Records()), 100_000)
	page := pageOf(t, h, Options{})
	require.Less(t, len(page), 1_500_000)
	pictures := picturesOf(page)
	require.Len(t, pictures, 1+maxLosses)
	require.Contains(t, page, "a lock is lost at")
	for _, p := range pictures {
		require.NotEmpty(t, classed(elements(t, p), "lost"))
	}
}
