//! Graphs that are built at run time: texts and nodes, their messages, and their results on all devices.
#![cfg(feature = "graph")]

#[path = "../devices/mod.rs"]
mod devices;
mod first_run;
mod messages;
mod nodes;
mod proposals;
mod random;
mod review;
