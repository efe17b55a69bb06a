// franz-go under remote control: one JSON request a line on standard input, one answer a line on standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type message struct {
	Key         *string     `json:"key"`
	Value       *string     `json:"value"`
	Headers     [][]*string `json:"headers"`
	TimestampMs *int64      `json:"timestamp_ms"`
	Partition   *int32      `json:"partition"`
}

type request struct {
	Op          string             `json:"op"`
	Topic       string             `json:"topic"`
	Topics      []string           `json:"topics"`
	Group       string             `json:"group"`
	Member      string             `json:"member"`
	Messages    []message          `json:"messages"`
	Compression string             `json:"compression"`
	Idempotent  bool               `json:"idempotent"`
	Acks        string             `json:"acks"`
	Count       int                `json:"count"`
	Partitions  int                `json:"partitions"`
	Configs     map[string]*string `json:"configs"`
	Name        string             `json:"name"`
	Value       string             `json:"value"`
	TimestampMs int64              `json:"timestamp_ms"`
	Committed   bool               `json:"committed"`
	Writer      string             `json:"writer"`
	Target      string             `json:"target"`
	ID          string             `json:"transactional_id"`
	Commit      bool               `json:"commit"`
	Security    *security          `json:"security"`
	Config      map[string]string  `json:"config"`
}

type driver struct {
	admin   *kadm.Client
	members map[string]*member
	writers map[string]*writer
	workers map[string]*worker
}

type operation func(context.Context, *driver, *request) (any, error)

var operations = map[string]operation{
	"produce":            produce,
	"read":               read,
	"join":               join,
	"state":              state,
	"commit":             commit,
	"leave":              leave,
	"committed":          committed,
	"topics":             topics,
	"create_topic":       createTopic,
	"create_partitions":  createPartitions,
	"delete_topic":       deleteTopic,
	"topic_configs":      topicConfigs,
	"alter_topic_config": alterTopicConfig,
	"offsets_for_time":   offsetsForTime,
	"open_writer":        openWriter,
	"write":              write,
	"send":               send,
	"end":                end,
	"close_writer":       closeWriter,
	"copy":               copyRecords,
	"work":               work,
	"worked":             worked,
	"rest":               rest,
}

func (d *driver) answer(line []byte) map[string]any {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return map[string]any{"error": err.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	result, err := operations[asked.Op](ctx, d, &asked)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"result": result}
}

// dial is the same for all clients of the open listener.
func dial() kgo.Opt {
	return kgo.DialTimeout(10 * time.Second)
}

// seeds are the bootstrap servers that the caller named, with commas between them.
func seeds() kgo.Opt {
	return kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
}

func main() {
	client, err := kgo.NewClient(seeds(), dial(), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	d := &driver{admin: kadm.NewClient(client)}
	d.members, d.writers, d.workers = map[string]*member{}, map[string]*writer{}, map[string]*worker{}
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		encoded, err := json.Marshal(d.answer(line))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(encoded))
	}
}
