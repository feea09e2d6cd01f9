//! Connections of the admin port: so many at once, each for so long.
//!
//! A client that opens connections and says nothing, or asks and does not read, would hold memory and file descriptors
//! for ever. Here the life of a connection is bounded from its accept, whatever it does; a bound on the number of them
//! then bounds everything.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// A listener that accepts a connection only when one of its places is free.
pub(super) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
    life: Duration,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener, num_connections: usize, life: Duration) -> Self {
        let places = Arc::new(Semaphore::new(num_connections));
        Self { listener, places, life }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed");
        // The trait's `accept`, not the socket's own: it waits and tries again when out of file descriptors.
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let connection = Connection { stream, end: Box::pin(sleep(self.life)), _place: place };
        (connection, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A stream that ends with its life: reading then finds the end of input, as if the client had closed, and writing fails.
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    /// Freed with the connection.
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// Fails once the life is over; until then the task is woken when it is.
    fn poll_alive(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.poll_alive(cx).is_err() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_alive(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_alive(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_alive(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
