//! Makes Rust of the `.proto` files, without an installed `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let services = ["worker.proto", "controller.proto"];
    let descriptors = protox::compile(services, ["proto"])?;
    // The clients are for the tests.
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
