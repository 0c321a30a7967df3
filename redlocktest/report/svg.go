package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// svg writes elements. Everything that is text goes through escape.
type svg struct{ strings.Builder }

// escape makes any text harmless in HTML and XML.
func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || r == 0xFFFE || r == 0xFFFF || unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	return html.EscapeString(s)
}

// num is a coordinate, to a tenth of a pixel.
func num(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		x = 0
	}
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}

func (s *svg) rect(class string, x, y, w, h float64, title string) {
	fmt.Fprintf(s, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, num(x), num(y), num(w), num(h))
	s.close("rect", title)
}

func (s *svg) path(class, d, title string) {
	if d == "" {
		return
	}
	fmt.Fprintf(s, `<path class="%s" d="%s"`, class, strings.TrimSpace(d))
	s.close("path", title)
}

// close ends an element that may have a title, which browsers show where the pointer is.
func (s *svg) close(element, title string) {
	if title == "" {
		s.WriteString("/>\n")
		return
	}
	fmt.Fprintf(s, "><title>%s</title></%s>\n", escape(title), element)
}

func (s *svg) text(class string, x, y float64, text string) {
	fmt.Fprintf(s, "<text class=\"%s\" x=\"%s\" y=\"%s\">%s</text>\n", class, num(x), num(y), escape(text))
}

// textWidth is about how wide a text of 12 pixels is.
func textWidth(s string) float64 { return 6.6 * float64(len([]rune(s))) }

// short cuts a text.
func short(s string, runes int) string {
	r := []rune(s)
	if len(r) <= runes {
		return s
	}
	return string(r[:runes-1]) + "…"
}

// span is a duration for people.
func span(d time.Duration) string {
	switch a := d.Abs(); {
	case a >= 2*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	case a >= 2*time.Minute:
		return fmt.Sprintf("%.1f min", d.Minutes())
	case a >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case a >= 10*time.Millisecond, a == 0:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
