package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// security is a listener other than the open one, the authority to trust there, and what the client shows.
type security struct {
	Bootstrap   string `json:"bootstrap"`
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
}

// connect names the brokers and the way to them; without security it is the open listener.
func connect(s *security) []kgo.Opt {
	if s == nil {
		return []kgo.Opt{seeds(), dial()}
	}
	options := []kgo.Opt{kgo.SeedBrokers(s.Bootstrap), kgo.DialTLSConfig(s.tls()), kgo.RequestRetries(1)}
	if mechanism := s.sasl(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options
}

func (s *security) tls() *tls.Config {
	pem, err := os.ReadFile(s.CA)
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if s.Certificate != "" {
		shown, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{shown}
	}
	return config
}

func (s *security) sasl() sasl.Mechanism {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: s.Token}.AsMechanism()
	}
	return nil
}
