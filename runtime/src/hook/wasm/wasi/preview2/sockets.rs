//! Sockets of a component: it gets none, and the call remembers that it wanted one.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::sockets::network::{self, ErrorCode, IpAddress, IpAddressFamily, Network};
use wasmtime_wasi::p2::bindings::sockets::{ip_name_lookup, tcp_create_socket, udp_create_socket};
use wasmtime_wasi::p2::{DynPollable, SocketError, SocketResult, TcpSocket, UdpSocket, subscribe};

use super::ComponentState;

impl ComponentState {
    fn refused<T>(&mut self) -> SocketResult<T> {
        self.call.wanted_network = true;
        Err(ErrorCode::AccessDenied.into())
    }
}

impl tcp_create_socket::Host for ComponentState {
    fn create_tcp_socket(&mut self, _: IpAddressFamily) -> SocketResult<Resource<TcpSocket>> {
        self.refused()
    }
}

impl udp_create_socket::Host for ComponentState {
    async fn create_udp_socket(&mut self, _: IpAddressFamily) -> SocketResult<Resource<UdpSocket>> {
        self.refused()
    }
}

impl ip_name_lookup::Host for ComponentState {
    fn resolve_addresses(
        &mut self,
        _: Resource<Network>,
        name: String,
    ) -> SocketResult<Resource<ip_name_lookup::ResolveAddressStream>> {
        self.cost.copied(name.len());
        self.refused()
    }
}

/// No hook has such a stream.
impl ip_name_lookup::HostResolveAddressStream for ComponentState {
    fn resolve_next_address(
        &mut self,
        _: Resource<ip_name_lookup::ResolveAddressStream>,
    ) -> SocketResult<Option<IpAddress>> {
        self.refused()
    }

    fn subscribe(
        &mut self,
        stream: Resource<ip_name_lookup::ResolveAddressStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, stream)
    }

    fn drop(&mut self, stream: Resource<ip_name_lookup::ResolveAddressStream>) -> wasmtime::Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

impl network::Host for ComponentState {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    /// No stream is one of a socket.
    fn network_error_code(&mut self, _: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(None)
    }
}

impl network::HostNetwork for ComponentState {
    fn drop(&mut self, network: Resource<Network>) -> wasmtime::Result<()> {
        self.table.delete(network)?;
        Ok(())
    }
}
