package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writer is a transactional producer.
type writer struct {
	client *kgo.Client
	isOpen bool
}

func openWriter(ctx context.Context, d *driver, asked *request) (any, error) {
	client, err := kgo.NewClient(
		seeds(), dial(), kgo.TransactionalID(asked.ID), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return nil, err
	}
	d.writers[asked.Writer] = &writer{client: client}
	// The epoch rises now, and not with the first record.
	_, _, err = client.ProducerID(ctx)
	return nil, err
}

// begin begins a transaction if none is open.
func (w *writer) begin() error {
	if w.isOpen {
		return nil
	}
	w.isOpen = true
	return w.client.BeginTransaction()
}

// send waits for no acknowledgement.
func send(_ context.Context, d *driver, asked *request) (any, error) {
	w := d.writers[asked.Writer]
	if err := w.begin(); err != nil {
		return nil, err
	}
	for _, m := range asked.Messages {
		w.client.Produce(context.Background(), toRecord(asked.Topic, m), nil)
	}
	return nil, nil
}

func write(ctx context.Context, d *driver, asked *request) (any, error) {
	w := d.writers[asked.Writer]
	if err := w.begin(); err != nil {
		return nil, err
	}
	records := []*kgo.Record{}
	for _, m := range asked.Messages {
		records = append(records, toRecord(asked.Topic, m))
	}
	return nil, w.client.ProduceSync(ctx, records...).FirstErr()
}

func (w *writer) settle(ctx context.Context, commit bool) error {
	if commit {
		return w.client.Flush(ctx)
	}
	return w.client.AbortBufferedRecords(ctx)
}

func end(ctx context.Context, d *driver, asked *request) (any, error) {
	w := d.writers[asked.Writer]
	w.isOpen = false
	// The client leaves it to its user to send what an ending transaction still holds, or to drop it.
	if err := w.settle(ctx, asked.Commit); err != nil {
		return nil, err
	}
	return nil, w.client.EndTransaction(ctx, kgo.TransactionEndTry(asked.Commit))
}

func closeWriter(_ context.Context, d *driver, asked *request) (any, error) {
	d.writers[asked.Writer].client.Close()
	delete(d.writers, asked.Writer)
	return nil, nil
}

func copyRecords(ctx context.Context, d *driver, asked *request) (any, error) {
	options := []kgo.Opt{
		seeds(), dial(), kgo.TransactionalID(asked.ID), kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	session, err := kgo.NewGroupTransactSession(append(options, protocol(asked)...)...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return nil, err
	}
	for count := 0; count < asked.Count && ctx.Err() == nil; {
		copies := []*kgo.Record{}
		session.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			copies = append(copies, &kgo.Record{Topic: asked.Target, Value: record.Value, Partition: record.Partition})
		})
		if err := session.ProduceSync(ctx, copies...).FirstErr(); err != nil {
			return nil, err
		}
		count += len(copies)
	}
	_, err = session.End(ctx, kgo.TransactionEndTry(asked.Commit))
	return nil, err
}
