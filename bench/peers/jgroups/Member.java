/*
 * A member of JGroups' conversations, for the rows of group-delivery and group-stream.
 *
 * java Member ADDRESS INDEX MEMBERS.. joins, for each number of members above its index, one conversation of that many in
 * partial order and one in total order. It writes "joined", and "ready" when all have all their
 * members. Conversation 2k has the kth
 * number of members and partial order, conversation 2k + 1 total order. Member 0 is the coordinator, which orders.
 *
 * A line "CONVERSATION ROUND MINE ALL OCTETS GAP_US" has it send MINE messages, one in each gap if there is one, and take ALL. It
 * then writes the nanoseconds of its first sending and of the last arrival, and with a gap how long each message took.
 *
 * The stack is JGroups' own udp.xml without failure detection and merging, which a member that is stopped between two
 * rounds would upset, and for total order with the SEQUENCER of its sequencer.xml.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;
import org.jgroups.protocols.*;
import org.jgroups.protocols.pbcast.*;
import org.jgroups.stack.Protocol;

public class Member implements Receiver {
    private static final int HEADER = 16;
    private final JChannel channel;
    private int members, round, count;
    private long last;
    private long[] took = new long[1 << 20];

    Member(InetAddress address, int port, boolean total, boolean first) throws Exception {
        UDP udp = new UDP();
        udp.setBindAddress(address);
        udp.setMulticastPort(port);
        List<Protocol> stack = new ArrayList<>(List.of(
            udp, new RED(), new PING(),
            new NAKACK2().setXmitInterval(500), new UNICAST3().setXmitInterval(500),
            new STABLE().setDesiredAverageGossip(50_000).setMaxBytes(4_000_000),
            new GMS().setJoinTimeout(first ? 100 : 20_000).printLocalAddress(false),
            new UFC().setMaxCredits(4_000_000).setMinThreshold(0.4),
            new MFC().setMaxCredits(4_000_000).setMinThreshold(0.4)));
        if (total)
            stack.add(new SEQUENCER());
        stack.add(new FRAG2().setFragSize(60_000));
        channel = new JChannel(stack).setReceiver(this);
        channel.connect("xk" + port);
    }

    public synchronized void viewAccepted(View view) {
        members = view.size();
        notifyAll();
    }

    private synchronized void await(int all) throws InterruptedException {
        while (members < all)
            wait();
    }

    public void receive(Message message) {
        long now = System.nanoTime();
        ByteBuffer octets = ByteBuffer.wrap(message.getArray(), message.getOffset(), message.getLength());
        long sent = octets.getLong();
        int of = octets.getInt();
        synchronized (this) {
            if (of != round) {
                round = of;
                count = 0;
            }
            took[count++] = now - sent;
            last = now;
            notifyAll();
        }
    }

    private String run(int number, int mine, int all, int size, long gap) throws Exception {
        long first = 0, next = System.nanoTime();
        for (int i = 0; i < mine; i++) {
            if (gap > 0) {
                next += gap * 1000;
                while (System.nanoTime() < next)
                    LockSupport.parkNanos(next - System.nanoTime());
            }
            byte[] octets = new byte[Math.max(size, HEADER)];
            long now = System.nanoTime();
            if (first == 0)
                first = now;
            ByteBuffer.wrap(octets).putLong(now).putInt(number).putInt(i);
            channel.send(new BytesMessage(null, octets));
        }
        StringBuilder said = new StringBuilder();
        synchronized (this) {
            while (round != number || count < all)
                wait();
            said.append(first).append(' ').append(last);
            for (int i = 0; gap > 0 && i < all; i++)
                said.append(' ').append(took[i]);
        }
        return said.toString();
    }

    public static void main(String[] args) throws Exception {
        InetAddress address = InetAddress.getByName(args[0]);
        int index = Integer.parseInt(args[1]);
        Member[] all = new Member[2 * (args.length - 2)];
        for (int at = 0; at < all.length; at++)
            if (index < Integer.parseInt(args[2 + at / 2]))
                all[at] = new Member(address, 45588 + at, at % 2 == 1, index == 0);
        System.out.println("joined");
        for (int at = 0; at < all.length; at++)
            if (all[at] != null)
                all[at].await(Integer.parseInt(args[2 + at / 2]));
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            int[] of = new int[6];
            for (int i = 0; i < 6; i++)
                of[i] = Integer.parseInt(words[i]);
            System.out.println(all[of[0]].run(of[1], of[2], of[3], of[4], of[5]));
        }
        System.exit(0);
    }
}
