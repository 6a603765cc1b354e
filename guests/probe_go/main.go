// Knows a hook in Go that echoes its parent's spec and the files of its mount, after an hour's sleep and with the order
// of a map.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"strings"
	"time"
)

type request struct {
	Parent struct {
		Spec any `json:"spec"`
	} `json:"parent"`
	Settings struct {
		Log   bool   `json:"log"`
		Mount string `json:"mount"`
		Panic string `json:"panic"`
	} `json:"settings"`
}

type response struct {
	Status   status `json:"status"`
	Children []any  `json:"children"`
}

type status struct {
	Spec  any               `json:"spec"`
	Order string            `json:"order"`
	Files map[string]string `json:"files,omitempty"`
}

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	var asked request
	if err := json.Unmarshal(input, &asked); err != nil {
		fail(err)
	}
	if asked.Settings.Log {
		log.Print("asked") // prints the time
	}
	end(asked.Settings.Panic)
	time.Sleep(time.Hour)
	files, err := read(asked.Settings.Mount)
	if err != nil {
		fail(err)
	}
	answer := response{Status: status{Spec: asked.Parent.Spec, Order: order(), Files: files}, Children: []any{}}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}

// Panics in the way that is named.
func end(way string) {
	switch way {
	case "words":
		panic("no colour for \"a\"")
	case "error":
		panic(errors.New("no colour"))
	case "index":
		numbers := make([]int, len(os.Args)-len(os.Args))
		numbers[len(os.Args)] = 1
	case "nil":
		var none *request
		none.Settings.Log = true
	case "map":
		var none map[string]int
		none["a"] = 1
	case "marshal":
		_, _ = json.Marshal(loud{})
	case "goroutine":
		go panic("no colour in a goroutine")
		select {}
	case "deadlock":
		select {}
	case "long":
		panic(strings.Repeat("no colour ", 100_000))
	}
}

type loud struct{}

func (loud) MarshalJSON() ([]byte, error) {
	panic("no JSON of it")
}

// What lies in a mount, if one is named.
func read(mount string) (map[string]string, error) {
	if mount == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(mount)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(mount + "/" + entry.Name())
		if err != nil {
			return nil, err
		}
		files[entry.Name()] = string(content)
	}
	return files, nil
}

// The letters in the order of a map, which Go chooses at random.
func order() string {
	letters := map[rune]bool{}
	for letter := 'a'; letter <= 'z'; letter++ {
		letters[letter] = true
	}
	var order []rune
	for letter := range letters {
		order = append(order, letter)
	}
	return string(order)
}

func fail(err error) {
	os.Stderr.WriteString(err.Error() + "\n")
	os.Exit(1)
}
