import json, os, resource, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
folder = json.loads(os.environ['XK_EXEC'])['folder']
begun = time.monotonic()
held = []
# A while, and as long as it takes on a busy machine.
while time.monotonic() < begun + (1.5 if len(held) >= 3000 else 60):
    try:
        asker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asker.setblocking(False)
        asker.connect(folder + '/door')
        held.append(asker)
    except BlockingIOError:
        asker.close()
        time.sleep(0.001)
    except OSError:
        break
    if len(held) == 3000: print('many', flush=True)
print('held')
time.sleep(0.5)
