// The tutorial's hook in Go, for `cargo xtask bench guests`.
package main

import (
	"encoding/json"
	"os"
)

type request struct {
	Parent struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			Who *string `json:"who"`
		} `json:"spec"`
	} `json:"parent"`
	// By kind and then by name.
	Children map[string]map[string]json.RawMessage `json:"children"`
}

type metadata struct {
	Name string `json:"name"`
}

type pod struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       podSpec  `json:"spec"`
}

type podSpec struct {
	RestartPolicy string      `json:"restartPolicy"`
	Containers    []container `json:"containers"`
}

type container struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Command []string `json:"command"`
}

type response struct {
	Status   map[string]int `json:"status"`
	Children []pod          `json:"children"`
}

func sync(request request) response {
	who := "World"
	if request.Parent.Spec.Who != nil {
		who = *request.Parent.Spec.Who
	}
	hello := container{Name: "hello", Image: "busybox", Command: []string{"echo", "Hello, " + who + "!"}}
	return response{
		Status: map[string]int{"pods": len(request.Children["Pod.v1"])},
		Children: []pod{{
			APIVersion: "v1",
			Kind:       "Pod",
			Metadata:   metadata{Name: request.Parent.Metadata.Name},
			Spec:       podSpec{RestartPolicy: "OnFailure", Containers: []container{hello}},
		}},
	}
}

func main() {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(sync(asked)); err != nil {
		fail(err)
	}
}

func fail(err error) {
	os.Stderr.WriteString(err.Error() + "\n")
	os.Exit(1)
}
