package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

type parent struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Who *string `json:"who"`
	} `json:"spec"`
}

// A request with its children as C: maps, as webhooks that know no types have them, or JSON that nobody reads.
type request[C any] struct {
	Parent   parent                  `json:"parent"`
	Children map[string]map[string]C `json:"children"`
}

type object = map[string]any

type response struct {
	Status   object   `json:"status"`
	Children []object `json:"children"`
}

// What guests/hello does.
func sync(parent *parent, pods int) response {
	who := "World"
	if parent.Spec.Who != nil {
		who = *parent.Spec.Who
	}
	return response{
		Status: object{"pods": pods},
		Children: []object{{
			"apiVersion": "v1",
			"kind":       "Pod",
			"metadata":   object{"name": parent.Metadata.Name},
			"spec": object{
				"restartPolicy": "OnFailure",
				"containers": []object{
					{"name": "hello", "image": "busybox", "command": []string{"echo", "Hello, " + who + "!"}},
				},
			},
		}},
	}
}

func handle[C any](answer http.ResponseWriter, asked *http.Request) {
	body, err := io.ReadAll(asked.Body)
	var request request[C]
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	body, err = json.Marshal(sync(&request.Parent, len(request.Children["Pod.v1"])))
	if err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	answer.Header().Set("Content-Type", "application/json")
	answer.Write(body)
}

func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http.HandleFunc("POST /maps", handle[object])
	http.HandleFunc("POST /unread", handle[json.RawMessage])
	fmt.Printf("http://%s\n", listener.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, nil)
}
