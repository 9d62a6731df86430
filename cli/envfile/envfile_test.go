package envfile

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestParseReadsDotenvAsComposeDoes: what dotenv and Compose read in the same way, and where they would change a value in silence, the value.
func TestParseReadsDotenvAsComposeDoes(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"\n  \n# A=1\n  # B=2\n":        "",
		"A=1":                           "A=1",
		"A=1\r\nB=2\r\n":                "A=1|B=2",
		"\ufeffA=1\n":                   "A=1",
		" A = b c  \n":                  "A=b c",
		"A=\nB=''\nC=\"\"":              "A=|B=|C=",
		"export A=1\n  export  B='x'":   "A=1|B=x",
		"export=1":                      "export=1",
		"exported=1":                    "exported=1",
		"A=pa#ss # of the shop":         "A=pa#ss",
		"A=# nothing":                   "A=",
		"A=x\t# tab":                    "A=x",
		"A=$HOME ${B} $$":               "A=$HOME ${B} $$",
		`A='a "b" \n $C # d' # e`:       `A=a "b" \n $C # d`,
		`A="a 'b' \"c\" \\ \$D \x" `:    `A=a 'b' "c" \ $D \x`,
		`A="a\nb\tc\rd"`:                "A=a\nb\tc\rd",
		"A=it's \"so\"":                 "A=it's \"so\"",
		"A=b=c==":                       "A=b=c==",
		"A='-----BEGIN\nx\n'\nB=2":      "A=-----BEGIN\nx\n|B=2",
		"A=\"one\r\ntwo\"\r\nB=2":       "A=one\ntwo|B=2",
		"A=1\nA=2":                      "A=1|A=2",
		"a.b-c/d=1":                     "a.b-c/d=1",
		"A=ü €":                         "A=ü €",
		"A=\"C:\\\\dir\" # Windows\nB=": `A=C:\dir|B=`,
	} {
		vars, err := Parse("x.env", text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		var got []string
		for _, v := range vars {
			got = append(got, v.Name+"="+v.Value)
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("%q is read as %q, not %q", text, s, want)
		}
	}
}

// TestRefusedLineIsNamedByNumberWithoutItsValue: a line that cannot be read is named by its number, and nothing of it is shown.
func TestRefusedLineIsNamedByNumberWithoutItsValue(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nhunter2":            "line 2 of x.env cannot be read: it is written NAME=VALUE, and there is no =",
		"\n\n=hunter2":            "line 3 of x.env cannot be read: it is written NAME=VALUE, and there is no name",
		"A B=hunter2":             "line 1 of x.env cannot be read: a name has no space",
		"'A'=hunter2":             "line 1 of x.env cannot be read: a name has no space",
		"A=1\nB=\"hunter2\nC=3\n": "line 2 of x.env cannot be read: a quote begins there that nothing ends",
		"A='x\ny' hunter2":        "line 2 of x.env cannot be read: something stands behind the quote",
		"A=\"1\"hunter2":          "line 1 of x.env cannot be read: something stands behind the quote",
		"A=1\nB=hunter2\xff":      "line 2 of x.env cannot be read: the value is not text",
		"A=hunter2\x00":           "line 1 of x.env cannot be read: the value is not text",
		"A=\"hunter2\\":           "line 1 of x.env cannot be read: a quote begins there",
		strings.Repeat("A=hunter2\n", MaxFile/10+1): "x.env has more than",
	} {
		vars, err := Parse("x.env", text)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.40q: %v, %v", text, vars, err)
		}
	}
}

// TestQuotedTextRoundTrips: any text comes back as it was, between quotes of either kind.
func TestQuotedTextRoundTrips(t *testing.T) {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
	rapid.Check(t, func(t *rapid.T) {
		value := strings.ReplaceAll(rapid.String().Draw(t, "value"), "\x00", "")
		file := "A=\"" + escape.Replace(value) + "\"\n"
		want := 1
		if !strings.ContainsAny(value, "'\r") {
			file += "B='" + value + "' # so\n"
			want = 2
		}
		vars, err := Parse("x.env", file+"END="+strconv.Itoa(want))
		if err != nil || len(vars) != want+1 {
			t.Fatalf("%q: %v, %v", file, vars, err)
		}
		for _, v := range vars[:want] {
			if v.Value != value {
				t.Fatalf("%s of %q is %q", v.Name, file, v.Value)
			}
		}
	})
}
