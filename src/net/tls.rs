//! TLS configurations of server and client, and the certificate verifiers behind them.
