package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// member is one consumer of a group, polled by a goroutine until it leaves.
type member struct {
	client  *kgo.Client
	stop    context.CancelFunc
	stopped chan struct{}

	mutex    sync.Mutex
	held     map[string]map[int32]bool
	records  []map[string]any
	failures []string
}

func (m *member) gained(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for topic, indexes := range partitions {
		if m.held[topic] == nil {
			m.held[topic] = map[int32]bool{}
		}
		for _, index := range indexes {
			m.held[topic][index] = true
		}
	}
}

func (m *member) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for topic, indexes := range partitions {
		for _, index := range indexes {
			delete(m.held[topic], index)
		}
	}
}

func (m *member) run(ctx context.Context) {
	defer close(m.stopped)
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		m.mutex.Lock()
		fetches.EachRecord(func(record *kgo.Record) { m.records = append(m.records, describe(record)) })
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				m.failures = append(m.failures, err.Error())
			}
		})
		m.mutex.Unlock()
		m.client.AllowRebalance()
	}
}

// protocol returns the options of a member of a group that the request's config asks for.
func protocol(asked *request) []kgo.Opt {
	if asked.Config["group.protocol"] != "consumer" {
		return nil
	}
	return []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
}

func join(_ context.Context, d *driver, asked *request) (any, error) {
	m := &member{held: map[string]map[int32]bool{}, stopped: make(chan struct{})}
	options := []kgo.Opt{
		seeds(), dial(), kgo.ClientID(asked.Member), kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.SessionTimeout(10 * time.Second), kgo.OnPartitionsAssigned(m.gained), kgo.OnPartitionsRevoked(m.lost),
		kgo.OnPartitionsLost(m.lost),
	}
	client, err := kgo.NewClient(append(options, protocol(asked)...)...)
	if err != nil {
		return nil, err
	}
	var running context.Context
	running, m.stop = context.WithCancel(context.Background())
	m.client = client
	d.members[asked.Member] = m
	go m.run(running)
	return nil, nil
}

func state(_ context.Context, d *driver, asked *request) (any, error) {
	m := d.members[asked.Member]
	m.mutex.Lock()
	defer m.mutex.Unlock()
	assignment := [][]any{}
	for topic, indexes := range m.held {
		for index := range indexes {
			assignment = append(assignment, []any{topic, index})
		}
	}
	var failure any
	if len(m.failures) > 0 {
		failure = m.failures[0]
	}
	records := append([]map[string]any{}, m.records...)
	return map[string]any{"assignment": assignment, "records": records, "failure": failure}, nil
}

func commit(ctx context.Context, d *driver, asked *request) (any, error) {
	return nil, d.members[asked.Member].client.CommitUncommittedOffsets(ctx)
}

func leave(_ context.Context, d *driver, asked *request) (any, error) {
	m := d.members[asked.Member]
	delete(d.members, asked.Member)
	m.stop()
	<-m.stopped
	m.client.CloseAllowingRebalance()
	return nil, nil
}
