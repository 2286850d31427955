/**
 * The client of Odometer: numbers that never repeat, counted in your program's memory.
 *
 * <p>Begin with {@link odometer.client.OdometerClient} and {@link odometer.client.Sequence}. Behind
 * them are {@code Stock} (the numbers in memory, and who waits for them), {@code Refill} (what is
 * asked for), {@code Service} (which replica is called, and the call), and {@code Reply}.
 */
package odometer.client;
