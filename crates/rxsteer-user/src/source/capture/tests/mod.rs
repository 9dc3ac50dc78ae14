//! Tests of the capture source as a whole, on captures made by hand.

mod damage;
mod formats;
mod opening;
mod rounds;
mod seeds;
