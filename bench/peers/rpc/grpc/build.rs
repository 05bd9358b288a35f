//! The service for tonic, described by hand: nothing needs the compiler of Protocol Buffers.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let take = Method::builder()
        .name("take")
        .route_name("Take")
        .input_type("crate::Octets")
        .output_type("crate::Nothing")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = Service::builder()
        .name("Null")
        .package("xk.bench")
        .method(take)
        .build();
    Builder::new().compile(&[service]);
}
