// A stand-in for a host in Go, written for this bench as such hosts usually are: a goroutine with a scanner reads, a map of waiting
// calls by id correlates, encoding/json works both ways, each call is one write. It takes the same arguments and prints the same
// JSON object as host.c.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What a tool prints, with its escape: the text is of such lines, and their JSON has this size.
const line, lineSize = "src/main.py:12: x is not used\n", 31

type call struct {
	Type string            `json:"type"`
	ID   string            `json:"id"`
	Name string            `json:"name"`
	Args map[string]string `json:"args"`
}

type envelope struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type result struct {
	ID      string `json:"id"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
}

type host struct {
	to      io.WriteCloser
	writing sync.Mutex
	mutex   sync.Mutex
	last    int
	waiting map[string]chan *result
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// read hands each answer to who waits for it. The type is looked at first and decides what the rest is.
func (h *host) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), 64<<20)
	for lines.Scan() {
		var head envelope
		must(json.Unmarshal(lines.Bytes(), &head))
		if head.Type != "tool_result" {
			continue
		}
		answer := new(result)
		must(json.Unmarshal(lines.Bytes(), answer))
		h.mutex.Lock()
		waiter := h.waiting[head.ID]
		delete(h.waiting, head.ID)
		h.mutex.Unlock()
		if waiter != nil {
			waiter <- answer
		}
	}
	must(lines.Err())
}

func (h *host) call(text string) *result {
	waiter := make(chan *result, 1)
	h.mutex.Lock()
	h.last++
	id := strconv.Itoa(h.last)
	h.waiting[id] = waiter
	h.mutex.Unlock()
	frame, err := json.Marshal(call{"tool_call", id, "echo", map[string]string{"text": text}})
	must(err)
	h.writing.Lock()
	_, err = h.to.Write(append(frame, '\n'))
	h.writing.Unlock()
	must(err)
	return <-waiter
}

func (h *host) together(text string, share, inFlight int) {
	var group sync.WaitGroup
	for range inFlight {
		group.Add(1)
		go func() {
			defer group.Done()
			for range share {
				h.call(text)
			}
		}()
	}
	group.Wait()
}

func cpu() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e3
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func main() {
	size, calls, inFlight := number(os.Args[2]), number(os.Args[3]), number(os.Args[4])
	peer := exec.Command(os.Args[1])
	to, err := peer.StdinPipe()
	must(err)
	from, err := peer.StdoutPipe()
	must(err)
	must(peer.Start())
	h := &host{to: to, waiting: map[string]chan *result{}}
	over := make(chan bool)
	go func() {
		h.read(from)
		close(over)
	}()
	empty, err := json.Marshal(call{"tool_call", "1000", "echo", map[string]string{"text": ""}})
	must(err)
	room := max(size-len(empty)-1, 0)
	text := strings.Repeat(line, room/lineSize) + strings.Repeat("x", room%lineSize)
	if h.call(text).Content[0].Text != text {
		panic("the text did not come back")
	}

	share := calls / inFlight
	h.together(text, max(share/10, 1), inFlight)
	times := make([]float64, 0, share)
	start, used := time.Now(), cpu()
	if inFlight == 1 {
		for range share {
			at := time.Now()
			h.call(text)
			times = append(times, float64(time.Since(at).Nanoseconds())/1e3)
		}
	} else {
		h.together(text, share, inFlight)
	}
	wall := time.Since(start).Seconds()
	used = cpu() - used
	calls = share * inFlight
	numbers := map[string]float64{"per_second": float64(calls) / wall, "cpu_us": used / float64(calls)}
	if inFlight == 1 {
		sort.Float64s(times)
		numbers["p50_us"], numbers["p99_us"] = times[calls/2], times[calls*99/100]
	}
	must(to.Close())
	<-over
	must(peer.Wait())
	must(json.NewEncoder(os.Stdout).Encode(numbers))
}
