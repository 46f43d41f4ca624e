"""The analysis of FedADMM (Gong, Li and Freris, ICDE 2022) as functions: what it measures, and what it promises.

t      rounds done: the paper counts rounds from 0       L  the smoothness of every f_i; the Lagrangian is spelt out
V^t    the optimality gap of equation 7                  epsilon_i  the squared error of a local solve (equation 6)
"""
