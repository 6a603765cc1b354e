package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func call(address string) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var way, file string
		var count int
		if _, err := fmt.Sscan(lines.Text(), &way, &file, &count); err != nil {
			return fmt.Errorf("%q is not \"WAY FILE COUNT\": %w", lines.Text(), err)
		}
		times, err := measure(address+"/"+way, file, count)
		if err != nil {
			return err
		}
		for _, time := range times {
			fmt.Print(time.Nanoseconds(), " ")
		}
		fmt.Println()
	}
	return lines.Err()
}

// What an operator has is objects, read from its cache: that they are read here is not part of a call.
func measure(url, file string, count int) ([]time.Duration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var request object
	if err := json.Unmarshal(text, &request); err != nil {
		return nil, err
	}
	times := make([]time.Duration, count)
	for i := range times {
		start := time.Now()
		response, err := post(url, request)
		times[i] = time.Since(start)
		if err != nil {
			return nil, err
		}
		if len(response.Children) != 1 {
			return nil, fmt.Errorf("%s answered with %d children instead of one", url, len(response.Children))
		}
	}
	return times, nil
}

func post(url string, request object) (*response, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	answer, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, answer.Status, body)
	}
	var response response
	return &response, json.Unmarshal(body, &response)
}
