"""What a program sees of its sockets, a numbered line for each behaviour: the same on Linux's and under `xk exec`.

    main.py OURS ALSO NOBODY        two addresses of this host, and one on its network that no host has
"""

import kit
import options, tcp, udp, own, groups

kit.run()
