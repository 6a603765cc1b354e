// Knows a hook in Go that echoes its parent's spec and the files of its mount, after an hour's sleep and with the order
// of a map.
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"
	"time"
)

type request struct {
	Parent struct {
		Spec any `json:"spec"`
	} `json:"parent"`
	Settings struct {
		Log   bool   `json:"log"`
		Mount string `json:"mount"`
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
