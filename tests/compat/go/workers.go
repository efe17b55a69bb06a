package main

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// worker is one member of a share group, which acknowledges in a goroutine until it rests.
type worker struct {
	client  *kgo.Client
	stop    context.CancelFunc
	stopped chan struct{}

	mutex  sync.Mutex
	stored map[int32]bool
	notes  [][]any
}

// acknowledged notes by partition whether all acknowledgements of a round are stored.
func (w *worker) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, result := range results {
		isStored, isKnown := w.stored[result.Partition]
		w.stored[result.Partition] = result.Err == nil && (isStored || !isKnown)
	}
}

func (w *worker) run(ctx context.Context) {
	defer close(w.stopped)
	for ctx.Err() == nil {
		polling, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		records := w.client.PollFetches(polling).Records()
		cancel()
		w.work(records)
	}
}

// work acknowledges records, waits until that is stored, and notes the outcomes.
func (w *worker) work(records []*kgo.Record) {
	w.mutex.Lock()
	w.stored = map[int32]bool{}
	w.mutex.Unlock()
	for _, record := range records {
		record.Ack(decide(record))
	}
	flushing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	err := w.client.FlushAcks(flushing)
	cancel()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, record := range records {
		note := []any{number(record), int(decide(record)), err == nil && w.stored[record.Partition]}
		w.notes = append(w.notes, note)
	}
}

// decide returns what a member does with a record, as drivers/share_workers.py says; it renews no lock.
func decide(record *kgo.Record) kgo.AckStatus {
	n := number(record)
	switch {
	case n%10 == 3:
		return kgo.AckReject
	case n%25 == 9 || (n%10 == 5 && record.DeliveryCount() == 1):
		return kgo.AckRelease
	}
	return kgo.AckAccept
}

func number(record *kgo.Record) int {
	n, err := strconv.Atoi(string(record.Value))
	if err != nil {
		panic(err)
	}
	return n
}

func work(_ context.Context, d *driver, asked *request) (any, error) {
	w := &worker{stopped: make(chan struct{})}
	client, err := kgo.NewClient(
		seeds(), dial(), kgo.ClientID(asked.Member), kgo.ShareGroup(asked.Group), kgo.ConsumeTopics(asked.Topic),
		kgo.ShareAckCallback(w.acknowledged),
	)
	if err != nil {
		return nil, err
	}
	var running context.Context
	running, w.stop = context.WithCancel(context.Background())
	w.client = client
	d.workers[asked.Member] = w
	go w.run(running)
	return nil, nil
}

func worked(_ context.Context, d *driver, asked *request) (any, error) {
	w := d.workers[asked.Member]
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return map[string]any{"notes": append([][]any{}, w.notes...), "failure": nil}, nil
}

func rest(ctx context.Context, d *driver, asked *request) (any, error) {
	w := d.workers[asked.Member]
	w.stop()
	<-w.stopped
	w.client.Close()
	return worked(ctx, d, asked)
}
