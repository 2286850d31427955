// How fast CosId's SegmentChainId hands out numbers in one process; README.md says how it is run.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;

import me.ahoo.cosid.segment.IdSegmentDistributor;
import me.ahoo.cosid.segment.SegmentChainId;

/**
 * Arguments: numbers in a segment, threads. For each line it reads, a number of milliseconds, it
 * takes numbers for so long and prints how many a second all threads together had. The first
 * rounds are slower, until the compiler has seen enough.
 */
final class Chain {
    /** Numbers between two looks at the clock. */
    private static final int BURST = 10_000;
    /** Keeps the compiler from leaving the numbers out. */
    private static volatile long seen;

    public static void main(String[] arguments) throws Exception {
        long step = Long.parseLong(arguments[0]);
        int threads = Integer.parseInt(arguments[1]);
        // In memory and without a wait: the store costs nothing, as for the cursor.
        SegmentChainId chain = new SegmentChainId(new IdSegmentDistributor.Atomic(step));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = lines.readLine()) != null) {
            long nanos = TimeUnit.MILLISECONDS.toNanos(Long.parseLong(line));
            System.out.println(Math.round(round(chain, threads, nanos)));
        }
        System.exit(0);
    }

    private static double round(SegmentChainId chain, int n, long nanos) throws Exception {
        CyclicBarrier barrier = new CyclicBarrier(n);
        Taker[] takers = new Taker[n];
        for (int i = 0; i < n; i++) {
            takers[i] = new Taker(chain, barrier, nanos);
            takers[i].start();
        }
        long count = 0;
        long start = Long.MAX_VALUE;
        long end = Long.MIN_VALUE;
        for (Taker taker : takers) {
            taker.join();
            count += taker.count;
            start = Math.min(start, taker.start);
            end = Math.max(end, taker.end);
        }
        return count * 1e9 / (end - start);
    }

    private static final class Taker extends Thread {
        private final SegmentChainId chain;
        private final CyclicBarrier barrier;
        private final long nanos;
        private long count;
        private long start;
        private long end;

        Taker(SegmentChainId chain, CyclicBarrier barrier, long nanos) {
            this.chain = chain;
            this.barrier = barrier;
            this.nanos = nanos;
        }

        @Override
        public void run() {
            try {
                barrier.await();
            } catch (InterruptedException | BrokenBarrierException impossible) {
                throw new IllegalStateException(impossible);
            }
            start = System.nanoTime();
            do {
                count += burst(chain);
                end = System.nanoTime();
            } while (end - start < nanos);
        }
    }

    private static long burst(SegmentChainId chain) {
        long sum = 0;
        for (int i = 0; i < BURST; i++) {
            sum += chain.generate();
        }
        seen = sum;
        return BURST;
    }
}
